"""Runs of a store as a table."""

from __future__ import annotations

import io

import pytest
from made_up import HOSTILE, made_run
from rich.console import Console

from opmark.report.console.runs import merged_line, print_runs, revision
from opmark.schema.run import RunSummary
from opmark.store.merge import Merged


def printed(*found: RunSummary, width: int | None = None) -> str:
    out = io.StringIO()
    print_runs(found, Console(file=out, width=width or 1000, force_terminal=width is not None, color_system=None))
    return out.getvalue()


def test_columns_that_nothing_is_in_are_left_out() -> None:
    text = printed(RunSummary(made_run(1), {"ok": 1}))
    assert text.splitlines()[0].split() == ["run", "started", "(UTC)", "records"]
    assert "failed" in printed(RunSummary(made_run(1), {"oom": 1})).splitlines()[0]


def test_a_narrow_terminal_has_two_lines_a_run() -> None:
    one = RunSummary(made_run(1, "nightly", description="d" * 30), {"ok": 1}, ("null",), ("box",))
    assert len(printed(one, width=200).splitlines()) == 2
    first, second = printed(one, width=60).splitlines()
    assert first.endswith("nightly")
    assert second.startswith("  records 1  backends null")


def test_several_backends_are_counted() -> None:
    text = printed(RunSummary(made_run(1), {"ok": 1}, ("a", "b", "c", "d", "e")))
    assert "a, b, c and 2 more" in text


@pytest.mark.parametrize("width", [None, 60])
def test_a_hostile_label_stays_on_its_line(width: int | None) -> None:
    text = printed(RunSummary(made_run(1, HOSTILE), {"ok": 1}), width=width)
    assert all(line.isprintable() for line in text.split("\n"))
    assert "\\x1b" in text


def test_a_commit_is_shortened() -> None:
    assert (revision("a" * 40 + "+"), revision("a" * 40), revision("")) == ("a" * 12 + "+", "a" * 12, "")


def test_what_came_of_a_merge_is_a_line() -> None:
    assert merged_line(Merged()) == "0 new runs, 0 new records"
    full = Merged(["a", "b-2"], ["c"], ["d"], {"b": "b-2"}, 5, 1)
    assert merged_line(full) == "2 new runs, 1 completed, 1 there already, 5 new records, 1 new finding; b is b-2 here"
