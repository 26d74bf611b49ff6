"""A real browser, and a port for what it asks."""

import os
import shutil
import socket

from playwright.sync_api import Browser, Playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium(playwright: Playwright) -> Browser:
    """Start the system's Chromium, or the one that Playwright has downloaded."""
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=program, args=arguments)


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
