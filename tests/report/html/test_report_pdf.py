"""Printing of PDFs: finding a browser, its options, and messages about failures."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from opmark.errors import UserError
from opmark.report.html.page import NAMES, VARIABLE, find_browser, print_pdf

Script = Callable[..., Path]
_PRINTS = """
for argument in "$@"; do case "$argument" in --print-to-pdf=*) target="${argument#--print-to-pdf=}";; esac; done
printf '%s\\n' "$@" > "$(dirname "$0")/asked"
printf '%%PDF-1.7 of a fake' > "$target"
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """A browser that is nothing but these lines; no other is found."""
    monkeypatch.delenv(VARIABLE, raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(lines: str = _PRINTS, name: str = "chromium") -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Only what lies there is installed."""
    monkeypatch.setattr("opmark.report.html.page._APPS", ())
    found = {path.name: str(path) for path in folder.iterdir()}
    monkeypatch.setattr(shutil, "which", lambda name: found.get(name) or (name if Path(name).is_file() else None))


def test_the_one_that_is_named_prints(script: Script) -> None:
    path = script()
    assert print_pdf("<p>page</p>", path).startswith(b"%PDF-1.7 of a fake")
    asked = (path.parent / "asked").read_text().splitlines()
    assert "--headless" in asked
    assert ("--no-sandbox" in asked) == (os.geteuid() == 0)
    assert any(argument.startswith("--user-data-dir=") for argument in asked)
    assert asked[-1].startswith("file://")
    assert not Path(asked[-1].removeprefix("file://")).exists()


def test_one_is_found(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(name="brave")
    alone(monkeypatch, path.parent)
    assert find_browser() == str(path)
    other = script(name="mine")
    monkeypatch.setenv(VARIABLE, str(other))
    assert find_browser() == str(other)
    assert find_browser(path) == str(path)


def test_without_one_a_hint_says_what_to_do(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = script(name="other").parent
    alone(monkeypatch, folder)
    with pytest.raises(UserError, match="none was found") as refused:
        find_browser()
    assert "--browser PATH" in str(refused.value.hint)
    with pytest.raises(UserError, match="--browser: `nothing` is no program"):
        find_browser(Path("nothing"))


def test_what_a_browser_said_before_it_failed_is_told(script: Script) -> None:
    path = script("echo 'no display' >&2\nexit 3")
    with pytest.raises(UserError, match=r"exit code 3 and printed no PDF\n  no display") as refused:
        print_pdf("<p>page</p>", path)
    assert "--format html" in str(refused.value.hint)


def test_a_browser_that_prints_nothing_is_no_success(script: Script) -> None:
    with pytest.raises(UserError, match="ended well but printed no PDF"):
        print_pdf("<p>page</p>", script("exit 0"))


def test_a_browser_that_hangs_is_ended(script: Script) -> None:
    with pytest.raises(UserError, match=r"within 0\.2 s"):
        print_pdf("<p>page</p>", script("exec sleep 30"), timeout=0.2)


def test_a_real_one_prints() -> None:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no browser is installed")
    assert b"%%EOF" in print_pdf("<!doctype html><title>a</title><p>page</p>", Path(found))[-32:]
