"""One tab of a real browser, in which the tests of a module open one page after the other: a new tab takes a second."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect, sync_playwright

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


def violations(page: Page, scheme: Any = "light") -> list[tuple[str, str]]:
    """Return what shuts people out of a page, as axe finds it: a rule, and the begin of the first element."""
    page.emulate_media(color_scheme=scheme)
    found = Axe().run(page, options=SCHEMES[scheme])
    return [(one["id"], one["nodes"][0]["html"][:120]) for one in found.response["violations"]]


@contextmanager
def opened(tab: Page, address: str, height: int = 900) -> Iterator[Heard]:
    """Show a page as a browser that was just started does, and listen to it; show nothing at the end."""
    heard = Heard([], [], [])

    listeners: dict[Any, Any] = {
        "request": lambda request: heard.asked.append(request.url),
        "console": lambda message: heard.console.append(message.text),
        "pageerror": lambda error: heard.errors.append(str(error)),
    }
    tab.set_viewport_size({"width": 1100, "height": height})
    tab.emulate_media(media="null", color_scheme="null")
    for event, listener in listeners.items():
        tab.on(event, listener)
    try:
        tab.goto(address)
        yield heard
    finally:
        for event, listener in listeners.items():
            tab.remove_listener(event, listener)
        tab.goto("about:blank")
