"""The report for pull requests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from checks import compared, pairing
from made_up import HOSTILE
from msgspec.structs import replace
from showcase import CPU, GPU, Maker, fill, run, showcase

from opmark.api.report import make_report
from opmark.report.formats.markdown import LONGEST, markdown_report
from opmark.report.summary import Content, Versus
from opmark.schema import Caution
from opmark.schema.comparison import Pairing
from opmark.schema.measurement import PREEMPTED


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
    titles = re.findall(r"<summary>(\d+) cases? by (\w+ \w+)</summary>", text)
    assert sum(int(count) for count, _ in titles) == 90
    assert len({key for _, key in titles}) == len(titles) > 1, "each quantity has a table"
    assert "| interrupted | 20 |" in text


def test_a_comparison_comes_before_the_runs(db: Path) -> None:
    text = written("base", "new", db=db)
    assert text.startswith("### ❌ base → new: 2 slower, 1 faster, 7 undecided; geometric mean 1.033x")
    folds = ("2 cases slower", "1 case faster", "7 cases undecided", "base: 10 cases")
    assert sorted(folds, key=text.index) == list(folds)
    assert "| latency warm |" in text.split("base: 10 cases")[0]
    assert "the interval is of the mean; single cases lie between 0.9" in text


def test_verdicts_are_folded_and_what_needs_action_comes_first() -> None:
    folds = [f"1 case {verdict}" for verdict in ("slower", "faster", "undecided", "same")]
    pairs = [pairing(verdict=fold.removeprefix("1 case ")) for fold in reversed(folds)]
    text = markdown_report(Content("", (), (Versus(compared(*pairs), None),)))
    assert sorted(folds, key=text.index) == folds


@pytest.mark.parametrize(
    ("pairs", "sign"),
    [
        ([], "⚠️"),
        ([pairing(verdict="same")], "✅"),
        ([pairing(verdict="faster"), pairing(verdict="same")], "✅"),
        ([pairing(verdict="same"), pairing(verdict="undecided")], "⚠️"),
        ([pairing(verdict="same", statuses=("ok", "skipped"))], "⚠️"),
        ([pairing(verdict="undecided"), pairing(verdict="slower")], "❌"),
        ([pairing(verdict="undecided", statuses=("ok", "error"))], "❌"),
    ],
)
def test_only_a_comparison_that_is_fine_gets_a_tick(pairs: list[Pairing], sign: str) -> None:
    text = markdown_report(Content("", (), (Versus(compared(*pairs), None),)))
    assert text.startswith(f"### {sign} main → now: ")
    assert "not changed" not in text


def test_what_is_said_of_cases_is_what_they_are_folded_under() -> None:
    broken = pairing("exp", None, verdict="undecided", statuses=("ok", "error"))
    text = markdown_report(Content("", (), (Versus(compared(broken, pairing("add", verdict="undecided")), None),)))
    assert "<summary>1 case failed</summary>" in text
    assert "<summary>1 case undecided</summary>" in text


def test_a_run_that_is_not_whole_gets_no_tick(tmp_path: Path) -> None:
    good = [Maker(i).record("add", {"shape": [1024 * i]}, "torch-cpu", CPU) for i in (1, 2)]
    spoilt = replace(good[0].measurements[0], cautions=(Caution(PREEMPTED, "switched away", ""),))
    half = run(1, "half", good)
    runs = [
        (replace(half[0], tasks=5), half[1]),
        run(2, "whole", good),
        run(3, "spoilt", [replace(good[0], measurements=(spoilt,)), good[1]]),
    ]
    fill(tmp_path / "runs.db", runs)
    signs = [written(name, db=tmp_path / "runs.db").split()[1] for name in ("half", "whole", "spoilt")]
    assert signs == ["⚠️", "✅", "⚠️"]
    assert "1 number of 2 preempted" in written("spoilt", db=tmp_path / "runs.db")


def test_words_stand_at_the_left_and_numbers_at_the_right(db: Path) -> None:
    head, rule = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in written("one", db=db).split("<summary>All 1 case</summary>\n\n")[1].splitlines()[:2]
    )
    right = {name for name, dashes in zip(head, rule, strict=True) if dashes == "---:"}
    assert right == {"median", "interval", "bandwidth", "arithmetic", "of peak", "memory"}


@pytest.mark.parametrize("where", ["reason", "label", "title"])
def test_one_endless_text_takes_nothing_but_its_own_room(tmp_path: Path, where: str) -> None:
    endless = "x" * 70_000
    reasons = [endless if where == "reason" else "first", "second"]
    failed = [Maker(1).failed("add", {"shape": [i]}, "torch-cpu", "error", said) for i, said in enumerate(reasons, 1)]
    fill(tmp_path / "long.db", [run(1, endless if where == "label" else "long", failed)])
    text = make_report((), format="md", db=tmp_path / "long.db", title=endless if where == "title" else "")
    assert isinstance(text, str)
    assert "- **error**: second" in text
    assert f"{'x' * 300}..." in text
    assert "2 cases: 2 error" in text
    assert "Left out" not in text
    assert len(text) < LONGEST


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
