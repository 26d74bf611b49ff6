"""One tab of a real browser, in which the tests of a module open one page after the other: a new tab takes a second."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import ConsoleMessage, Error, Page, Request, expect, sync_playwright

from tests.conftest import PATIENCE_S
from tools.browser import chromium

SCHEMES: dict[str, dict[str, Any]] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
"""What axe is asked about a page, by the colours that its reader wants: nothing else of a page differs."""


class Heard(NamedTuple):
    """The addresses that a page asked for, its messages on the console, and its errors."""

    asked: list[str]
    console: list[str]
    errors: list[str]


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    """Start the browser once."""
    with sync_playwright() as playwright, chromium(playwright) as browser:
        page = browser.new_page(accept_downloads=True)
        page.set_default_timeout(1000 * PATIENCE_S)
        expect.set_options(timeout=1000 * PATIENCE_S)
        yield page


@contextmanager
def opened(tab: Page, address: str, height: int = 900) -> Iterator[Heard]:
    """Show a page as a browser that was just started does, and listen to it; show nothing at the end."""
    heard = Heard([], [], [])

    def asked(request: Request) -> None:
        heard.asked.append(request.url)

    def said(message: ConsoleMessage) -> None:
        heard.console.append(message.text)

    def failed(error: Error) -> None:
        heard.errors.append(str(error))

    tab.set_viewport_size({"width": 1100, "height": height})
    tab.emulate_media(media="null", color_scheme="null")
    tab.on("request", asked)
    tab.on("console", said)
    tab.on("pageerror", failed)
    try:
        tab.goto(address)
        yield heard
    finally:
        tab.remove_listener("request", asked)
        tab.remove_listener("console", said)
        tab.remove_listener("pageerror", failed)
        tab.goto("about:blank")
