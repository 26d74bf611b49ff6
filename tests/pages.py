"""A real browser for pages."""

import os
import shutil

from playwright.sync_api import Browser, Playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium(playwright: Playwright) -> Browser:
    """Start the system's Chromium, or the one that Playwright has downloaded."""
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=program, args=arguments)
