"""opmark report"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from showcase import fill, showcase

Command = Callable[..., Any]


@pytest.fixture
def stored(db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    showcase(db)
    monkeypatch.chdir(tmp_path)
    return db


def test_without_a_name_the_last_run_is_written_here(main: Command, stored: Path, tmp_path: Path) -> None:
    done = main("report")
    path = tmp_path / "opmark-report-20300217-030000-0000002c.html"
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith(f"wrote {path.name} (")
    assert f"open {path.as_uri()} in a browser" in done.err
    assert path.read_text().startswith("<!doctype html>")


def test_a_name_without_an_ending_is_told_to_be_html(main: Command, stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "report"
    hint = f"it is HTML, because a name without an ending does not say otherwise: -o {path}.html, -o {path}.md"
    done = main("report", "-o", str(path))
    assert done.code == 0
    assert hint in " ".join(done.err.split())
    assert path.read_text().startswith("<!doctype html>")
    for asked in (["-o", str(path), "--format", "html"], ["-o", f"{path}.html"]):
        assert "it is HTML" not in main("report", *asked).err


def test_the_ending_says_the_format(main: Command, stored: Path, tmp_path: Path) -> None:
    main("report", "base", "new", "-o", "pages/two.md")
    assert (tmp_path / "pages" / "two.md").read_text().startswith("### ❌ base → new: 2 slower")
    main("report", "one", "-o", "one.page", "--format", "html", "--title", "A <title>")
    assert "<h1>A &lt;title&gt;</h1>" in (tmp_path / "one.page").read_text()


def test_markdown_goes_to_standard_output(main: Command, stored: Path) -> None:
    by_default = main("report", "one", "--format", "md")
    assert by_default.out.startswith("### ✅ one: 1 case: 1 measured")
    assert by_default.out == main("report", "one", "--format", "md", "-o", "-").out
    assert main("report", "one", "-o", "-").out.startswith("<!doctype html>")


def test_a_pdf_is_what_the_browser_printed(main: Command, stored: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(
        '#!/bin/sh\nfor one in "$@"; do\n'
        'case "$one" in --print-to-pdf=*) printf "%%PDF-1" > "${one#--print-to-pdf=}";; esac\ndone\n'
    )
    browser.chmod(0o755)
    assert main("report", "one", "-o", "one.pdf", "--browser", str(browser)).code == 0
    assert (tmp_path / "one.pdf").read_bytes() == b"%PDF-1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no run named `nowhere`"),
        (["-o", "a.docx"], "no format has this ending"),
        (["--format", "docx"], "expected html, md, pdf"),
        (["base", "nowhere"], "`base` is a run, but `nowhere` is no run"),
        (["base", "new", "--margin", "2"], "margin"),
        (["--run", "base"], "--run goes with two backends of it"),
        (["base", "--quantity", "latency"], "a single run is compared with nothing"),
        (["one", "-o", "a.pdf", "--browser", "/nowhere"], "--browser: `/nowhere` is no program"),
    ],
)
def test_mistakes_are_explained(
    main: Command, stored: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = main("report", *arguments)
    assert done.code == 2
    assert message in done.err
    assert list(tmp_path.glob("*.html")) + list(tmp_path.glob("a.*")) == []


def test_an_empty_store_is_no_traceback(main: Command, db: Path) -> None:
    fill(db, [])
    done = main("report")
    assert (done.code, done.out) == (2, "")
    assert "no run yet" in done.err
