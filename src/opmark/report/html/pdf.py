"""A page on paper: a browser of this machine prints it, with a profile of its own that is thrown away."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from opmark.errors import UserError

VARIABLE = "OPMARK_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge", "microsoft-edge",
         "brave", "brave-browser")  # fmt: skip
_APPS = ("Google Chrome", "Chromium", "Microsoft Edge", "Brave Browser")
_TIMEOUT = 180.0
_LAST = 5
"""Lines of what a browser said that are told."""
_FLAGS = ("--headless", "--disable-gpu", "--no-first-run", "--no-default-browser-check", "--disable-extensions",
          "--disable-background-networking", "--disable-sync", "--no-pdf-header-footer")  # fmt: skip


def printed(html: str, browser: Path | None = None, timeout: float = _TIMEOUT) -> bytes:
    """The bytes of a PDF."""
    program = find_browser(browser)
    with tempfile.TemporaryDirectory(prefix="opmark-pdf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        page, made = folder / "report.html", folder / "report.pdf"
        page.write_text(html, encoding="utf-8")
        said = _run([program, *_flags(folder), f"--print-to-pdf={made}", page.as_uri()], timeout)
        found = made.read_bytes() if made.is_file() else b""
    if not found.startswith(b"%PDF-"):
        raise UserError(f"{program}: ended well but printed no PDF{said}", _another())
    return found


def find_browser(browser: Path | None = None) -> str:
    """The one that is named, that of `$OPMARK_BROWSER`, or the first that is installed."""
    for source, named in (("--browser", str(browser or "")), (f"${VARIABLE}", os.environ.get(VARIABLE, ""))):
        if named:
            found = shutil.which(named)
            if found is None:
                raise UserError(f"{source}: `{named}` is no program that can be started", "the path of a browser")
            return found
    found = next((path for path in _installed()), None)
    if found is None:
        raise UserError(
            "a PDF is printed by a browser, and none was found: looked for " + ", ".join(NAMES),
            f"install chromium, or name another by --browser PATH or ${VARIABLE}; "
            "--format html can be printed from any browser",
        )
    return found


def _installed() -> Iterator[str]:
    for name in NAMES:
        if found := shutil.which(name):
            yield found
    for app in _APPS:
        path = Path("/Applications") / f"{app}.app" / "Contents" / "MacOS" / app
        if path.is_file():
            yield str(path)


def _flags(folder: Path) -> list[str]:
    """Root has no sandbox to be put into; the page is ours and runs nothing but its own script."""
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    return [*_FLAGS, f"--user-data-dir={folder / 'profile'}", *root]


def _run(command: list[str], timeout: float) -> str:
    """What it said last, as part of a message."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]}: did not print the report within {timeout:g} s", _another()) from None
    except OSError as error:
        raise UserError(f"{command[0]}: cannot be started: {error.strerror or error}", _another()) from None
    lines = done.stderr.decode(errors="replace").split("\n")
    said = "".join(f"\n  {line}" for line in [line for line in lines if line.strip()][-_LAST:])
    if done.returncode:
        raise UserError(f"{command[0]}: ended with exit code {done.returncode} and printed no PDF{said}", _another())
    return said


def _another() -> str:
    return "--browser PATH names another one; --format html can be printed from any browser"
