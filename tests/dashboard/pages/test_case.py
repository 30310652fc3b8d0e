"""The page of a case over all runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rendered_pages import ask
from showcase import CPU, GPU, Again, Maker, fill, nights, run

from opmark.dashboard.pages import case
from opmark.dashboard.reader import Reader
from opmark.errors import UnknownName, UserError
from opmark.schema import Case

_HOSTILE = '"><script>alert(1)</script>&/?#'


def followed_case() -> Case:
    return Maker(1).record("add", {"shape": [1 << 20]}, "torch-cpu", CPU).task.case


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Thirty nights, the last with a label that nobody should trust, then one that failed."""
    made = Maker(1).record("add", {"shape": [1 << 20]}, "torch-cpu", CPU, factor=1.1)
    broken = Maker(1).failed("add", {"shape": [1 << 20]}, "torch-cpu", "error", _HOSTILE)
    path = tmp_path / "nights.db"
    fill(path, [*nights(), run(31, _HOSTILE, [Again(31).again(made, 0)]), run(32, "broken", [broken])])
    reader = Reader(path)
    yield reader
    reader.close()


def test_a_case_tells_its_series_and_where_its_level_changed(reader: Reader) -> None:
    shown = ask(reader, case.CASE_ENDPOINT, {"case": followed_case().id})
    (series,) = shown.answer.series
    assert (series.where, series.runs) == ("torch-cpu ×2", 31)
    (change,) = series.changes
    assert change.after.started.startswith("2030-01-21")
    assert change.ratio == pytest.approx(1.1, rel=0.02)
    assert f"/compare?a={change.before.id}&amp;b={change.after.id}" in shown.html
    assert "<svg" in shown.html
    assert 'href="/search?q=add"' in shown.html


def test_a_row_tells_its_value_against_the_level_of_its_time(reader: Reader) -> None:
    shown = ask(reader, case.CASE_ENDPOINT, {"case": followed_case().id})
    rows = shown.answer.rows
    assert [row.run.started for row in rows] == sorted((row.run.started for row in rows), reverse=True)
    assert rows[0].status == "error"
    assert rows[0].value is None
    assert all(0.97 < row.ratio < 1.03 for row in rows[1:])  # on both sides of the step
    for row in rows[1:3]:
        assert f"/runs/{row.run.id}/items/{row.key}" in shown.html
        assert row.key in {item.key for item in reader.run_view(reader.run(row.run.id)).rows}


def test_labels_and_reasons_are_escaped(reader: Reader) -> None:
    html = ask(reader, case.CASE_ENDPOINT, {"case": followed_case().id}).html
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_filters_leave_what_was_asked_for(reader: Reader) -> None:
    placed = {"case": followed_case().id}
    assert len(ask(reader, case.CASE_ENDPOINT, placed, since="2030-01-25").answer.rows) == 8  # six nights, two others
    assert ask(reader, case.CASE_ENDPOINT, placed, quantity="all").answer.series
    none = ask(reader, case.CASE_ENDPOINT, placed, backend="jax-cpu")
    assert none.answer.series == []
    assert "There is no history: no run has measured" in none.html


def test_long_tables_have_pages(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "ROWS", 10)
    shown = ask(reader, case.CASE_ENDPOINT, {"case": followed_case().id}, page="2", backend="torch-cpu")
    assert len(shown.answer.rows) == 10
    assert f"/cases/{followed_case().id}?backend=torch-cpu&amp;page=3" in shown.html


def test_only_the_newest_runs_are_followed(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "LAST", 5)
    assert len(ask(reader, case.CASE_ENDPOINT, {"case": followed_case().id}).answer.rows) == 5


def test_a_case_that_only_failed_has_a_page(tmp_path: Path) -> None:
    record = Maker(1).failed("add", {"shape": [64, 64]}, "torch-cpu", "error", "broken")
    fill(tmp_path / "failed.db", [run(1, "failed", [record])])
    reader = Reader(tmp_path / "failed.db")
    assert "There is no history" in ask(reader, case.CASE_ENDPOINT, {"case": record.task.case.id}).html
    reader.close()


def test_what_is_unknown_is_said(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no case named `0`"):
        ask(reader, case.CASE_ENDPOINT, {"case": "0"})
    with pytest.raises(UnknownName, match="no case named"):
        ask(Reader(tmp_path / "not there.db"), case.CASE_ENDPOINT, {"case": followed_case().id})
    with pytest.raises(UnknownName, match="no quantity named `speed`"):
        ask(reader, case.CASE_ENDPOINT, {"case": followed_case().id}, quantity="speed")
    with pytest.raises(UserError, match="since: expected a date"):
        ask(reader, case.CASE_ENDPOINT, {"case": followed_case().id}, since="yesterday")


def test_each_quantity_has_a_table_of_its_own(tmp_path: Path) -> None:
    made = Maker(1).record("add", {"shape": [1 << 20]}, "torch-cuda", GPU)
    fill(tmp_path / "device.db", [run(1, "a", [made]), run(2, "b", [Again(2).again(made, 0)])])
    reader = Reader(tmp_path / "device.db")
    shown = ask(reader, case.CASE_ENDPOINT, {"case": made.task.case.id}, quantity="all")
    tables = re.findall(r'aria-label="Runs that have it: (\w+ \w+)".*?</table>', shown.html, re.DOTALL)
    assert sorted(tables) == sorted({f"{row.quantity} {row.cache}" for row in shown.answer.rows})
    assert len(tables) > 2
    reader.close()
