"""A real browser without a window, for the tests, the benchmark of the dashboard and the screenshots."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    # Requests that a browser sends to its maker would be taken for requests of the page.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--disable-gpu",
    # Containers often have a /dev/shm of a few MB, in which a long page does not fit.
    "--disable-dev-shm-usage",
)


def chromium() -> str | None:
    """Return the path of a browser; None if none is installed."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def browsing() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    program = chromium()
    if program is None:
        raise SystemExit("no chromium is installed here: `apt-get install chromium` brings it")
    root = ("--no-sandbox",) if os.geteuid() == 0 else ()  # its sandbox refuses to work for root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*_ARGUMENTS, *root])
        try:
            yield browser
        finally:
            browser.close()
