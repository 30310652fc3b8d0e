"""Shares of a step: count times time, over the cases of one backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.helpers.compared import QUIET, case_of, figures, side

from opmark.analysis.comparison import compare
from opmark.analysis.rows import MachineFacts, RowCollector, rows_of_records
from opmark.analysis.step import steps_of
from opmark.report.comparison import step_lines
from opmark.schema import Record
from opmark.schema.measurement import PREEMPTED, Caution

MakeRecord = Callable[..., Record]
SMALL, LARGE = {"M": 1, "N": 1, "K": 1}, {"M": 2, "N": 1, "K": 1}


def weighted(record: Record, count: int, duration: float | None = None) -> Record:
    return replace(record, task=replace(record.task, case=replace(record.task.case, count=count, duration=duration)))


@pytest.fixture
def records(make_record: MakeRecord) -> list[Record]:
    """9 calls of 1 ms, and 1 of 3 ms that took 2 ms in the original."""
    first = weighted(make_record(params=SMALL, samples=[1e-3] * 5), 9)
    return [first, weighted(make_record(params=LARGE, samples=[3e-3] * 5), 1, 2e-3)]


def test_a_share_is_count_times_time(records: list[Record]) -> None:
    rows = rows_of_records(records)
    assert [row.step_share for row in rows] == [pytest.approx(0.75), pytest.approx(0.25)]
    assert [(row.count, row.original) for row in rows] == [(9, None), (1, 2e-3)]
    assert all(row.records for row in rows)
    (step,) = steps_of(rows).values()
    assert (step.calls, step.seconds) == (10, pytest.approx(12e-3))
    assert step.recorded == (pytest.approx(2e-3), pytest.approx(3e-3), 1)


def test_a_disturbed_time_is_no_part_of_the_step(records: list[Record], make_record: MakeRecord) -> None:
    spoilt = weighted(make_record(params={"M": 3, "N": 1, "K": 1}, samples=[5.0] * 5), 4)
    measurements = tuple(replace(one, cautions=(Caution(PREEMPTED, ""),)) for one in spoilt.measurements)
    rows = rows_of_records([*records, replace(spoilt, measurements=measurements)])
    assert [row.step_share for row in rows] == [pytest.approx(0.75), pytest.approx(0.25), None]
    (step,) = steps_of(rows).values()
    assert (step.calls, step.seconds) == (10, pytest.approx(12e-3))


def test_without_counts_and_durations_there_is_no_step(make_record: MakeRecord) -> None:
    rows = rows_of_records([make_record(params=SMALL), make_record(params=LARGE)])
    assert steps_of(rows) == {}
    assert {row.step_share for row in rows} == {None}


def test_each_backend_is_a_step_of_its_own(records: list[Record], make_record: MakeRecord) -> None:
    other = weighted(make_record(params=SMALL, backend="other-cpu"), 9)
    assert [row.step_share for row in rows_of_records([*records, other])][-1] == 1.0


def test_several_implementations_of_a_case_are_one_call_of_the_step(
    records: list[Record], make_record: MakeRecord
) -> None:
    other = weighted(make_record(params=SMALL, samples=[0.5e-3] * 5, implementation="fused"), 9)
    shares = {(row.params["M"], row.implementation): row.step_share for row in rows_of_records([*records, other])}
    assert sum(share or 0 for (_, name), share in shares.items() if name != "fused") == pytest.approx(1.0)
    assert shares[1, "fused"] == pytest.approx(0.375)


def test_rows_during_a_run_have_no_share_because_the_rest_is_not_known(records: list[Record]) -> None:
    shown = []
    collector = RowCollector("run", [one.task for one in records], lambda _: MachineFacts(), shown.append)
    for record in records:
        collector.add(record)
    assert [row.step_share for row in shown] == [None, None]


def test_a_comparison_says_how_the_step_changed() -> None:
    often, once = case_of(size=4), case_of(size=8)
    a = [*figures(QUIET, often), *figures(QUIET, once)]
    b = [*figures([2 * one for one in QUIET], often, run="run-b"), *figures(QUIET, once, run="run-b")]
    cases = {one.id: one for one in (often, once)}
    counted = dataclasses.replace(side(b, "B"), counts=lambda: {often.id: 9})
    found = compare(side(a), counted, cases)
    (step,) = found.steps
    assert step.ratio == pytest.approx(19 / 10, rel=1e-3)
    (line,) = step_lines(found)
    assert line.startswith("the step: ")
    assert "count x latency warm over 2 cases" in line
    assert compare(side(a), side(b, "B"), cases).steps == ()
