"""The report for pull requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from made_up import HOSTILE
from opmark.api.reporting import make_report
from opmark.report.markdown_report import LONGEST
from showcase import CPU, GPU, Maker, fill, run, showcase


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("markdown") / "showcase.db"
    showcase(path)
    return path


def written(*names: str, db: Path) -> str:
    made = make_report(names, format="md", db=db)
    assert isinstance(made, str)
    return made


def test_what_failed_is_said_first(db: Path) -> None:
    text = written("showcase", db=db)
    first, _, second, *_ = text.splitlines()
    assert first == (
        "### ❌ showcase: 90 cases: 85 measured, 1 wrong result, 1 error, 1 out of memory, 1 timed out, 1 skipped"
    )
    assert second.startswith("- **wrong result**: output 0 differs by 0.5")
    assert text.count("<details>") == text.count("</details>")
    assert "<details><summary>All 90 cases</summary>" in text
    assert "| interrupted | 20 |" in text


def test_a_comparison_comes_before_the_runs(db: Path) -> None:
    text = written("base", "new", db=db)
    assert text.startswith("### ❌ opmark: 4 slower, 2 faster, 4 same; geometric mean 1.033x")
    assert text.index("6 cases changed") < text.index("4 cases not changed") < text.index("base: 10 cases")


def test_it_fits_into_a_comment_and_says_what_does_not(tmp_path: Path) -> None:
    maker = Maker(1)
    records = [maker.record("add", {"shape": [1024 + i, 64]}, "torch-cuda", GPU) for i in range(1500)]
    fill(tmp_path / "large.db", [run(1, "large", records)])
    text = written(db=tmp_path / "large.db")
    assert LONGEST - 2000 < len(text) < LONGEST
    assert "rows of “All 1500 cases”" in text.splitlines()[-1]
    assert text.count("<details>") == text.count("</details>")
    at = text.splitlines().index("</details>")
    assert text.splitlines()[at - 2].startswith("| add float32")


def test_thousands_of_reasons_fit_as_well(tmp_path: Path) -> None:
    failed = [Maker(1).failed("add", {"shape": [i]}, "torch-cpu", "error", f"{i} " * 60) for i in range(1, 900)]
    fill(tmp_path / "failed.db", [run(1, "failed", failed)])
    text = written(db=tmp_path / "failed.db")
    assert len(text) < LONGEST
    assert "reasons of failures" in text.splitlines()[-1]


def test_nobody_gets_markup_in(tmp_path: Path) -> None:
    record = Maker(1).failed("add", {"shape": [2]}, "torch-cpu", "error", HOSTILE)
    fill(tmp_path / "evil.db", [run(1, HOSTILE, [replace(record, environment=CPU.id)])])
    text = written(db=tmp_path / "evil.db")
    assert "<b>" not in text
    assert "\x1b" not in text
    assert "@y" not in text


def test_a_run_without_records_has_a_line(tmp_path: Path) -> None:
    fill(tmp_path / "begun.db", [run(1, "begun", [])])
    assert written(db=tmp_path / "begun.db").startswith("### ⚠️ begun: no records yet of 0 planned tasks")
