"""The coverage page."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from rendered_pages import ask
from showcase import CPU, Maker, fill, run

from opmark.dashboard.pages import coverage
from opmark.dashboard.pages.coverage import CoverageCell, CoveragePage
from opmark.dashboard.reader import Reader
from opmark.errors import UnknownName
from opmark.schema.record import Record, Verification
from opmark.store.sql import open_sql

_SHAPE = {"shape": [64, 64]}
_HOSTILE = '"><script>alert(1)</script>'


def cell(answer: CoveragePage, op: str, backend: str = "torch-cpu") -> CoverageCell | None:
    rows = (row for category in answer.categories for row in category.rows)
    return next(row for row in rows if row.op == op).cells.get(backend)


def measured(op: str) -> Record:
    return Maker(1).record(op, _SHAPE, "torch-cpu", CPU)


def test_a_cell_tells_what_became_last_of_an_operator(tmp_path: Path) -> None:
    unchecked = replace(measured("exp"), verification=Verification("none"))
    failed = Maker(1).failed("softmax", _SHAPE, "torch-cpu", "wrong", _HOSTILE)
    skipped = Maker(1).failed("relu", _SHAPE, "torch-cpu", "skipped", "not installed")
    fill(
        tmp_path / "some.db",
        [run(1, "first", [measured("add"), measured("softmax")]), run(2, "last", [unchecked, failed, skipped])],
    )
    reader = Reader(tmp_path / "some.db")
    shown = ask(reader, coverage.COVERAGE_ENDPOINT)
    wanted = {"add": "verified", "exp": "ran", "softmax": "failed", "relu": "untried"}
    assert {op: found.state for op in wanted if (found := cell(shown.answer, op))} == wanted
    assert shown.answer.counts["verified"] == 1
    assert sum(column.counts["failed"] for column in shown.answer.columns) == shown.answer.counts["failed"] == 1
    assert shown.answer.operators > 100
    last = reader.run("last").id
    assert f'href="/runs/{last}?op=softmax&amp;backend=torch-cpu"' in shown.html
    assert "<script>alert" not in shown.html
    assert "&lt;script&gt;" in shown.html
    reader.close()


def test_what_is_written_later_is_seen_and_what_is_gone_is_not(tmp_path: Path) -> None:
    path = tmp_path / "grows.db"
    first, second = run(1, "first", [measured("add")]), run(2, "second", [measured("exp")])
    fill(path, [first])
    reader = Reader(path)
    states = []
    for step in (lambda: None, lambda: fill(path, [second]), lambda: forget(path, second[0].id)):
        step()
        answer = ask(reader, coverage.COVERAGE_ENDPOINT, backend="torch-cpu").answer
        states.append([found.state for op in ("add", "exp") if (found := cell(answer, op))])
    assert states == [["verified", "untried"], ["verified", "verified"], ["verified", "untried"]]
    reader.close()


def forget(path: Path, run_id: str) -> None:
    """Removes a run as pruning does."""
    with closing(open_sql(path)) as store:
        store.remove([run_id])


def test_filters_leave_a_category_or_a_backend(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "none yet.db")
    everything = ask(reader, coverage.COVERAGE_ENDPOINT).answer
    assert everything.runs == 0
    assert everything.counts["verified"] == 0
    name = everything.categories[0].name
    some = ask(reader, coverage.COVERAGE_ENDPOINT, category=name, backend="torch-cpu").answer
    assert [category.name for category in some.categories] == [name]
    assert [column.backend for column in some.columns] == ["torch-cpu"]
    assert some.operators < everything.operators


@pytest.mark.parametrize("name", ["category", "backend"])
def test_what_is_unknown_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownName, match=f"no {name} named `nothing`"):
        ask(Reader(tmp_path / "none.db"), coverage.COVERAGE_ENDPOINT, **{name: "nothing"})
