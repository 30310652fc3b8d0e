"""The gain of an implementation over the first one of the same case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opmark.analysis.rows import rows_of_records
from opmark.schema import EFFORTS, Case, Measurement, Record, Settings, Task

MakeRecord = Callable[..., Record]
MakeMeasurement = Callable[..., Measurement]


def by(implementation: str, record: Record, **changed: Any) -> Record:
    """Return the record of another implementation of the case."""
    settings = replace(record.task.settings, **changed)
    return replace(record, task=replace(record.task, implementation=implementation, settings=settings))


@pytest.fixture
def timed(make_record: MakeRecord) -> Callable[..., Record]:
    def make(implementation: str, seconds: float, **fields: Any) -> Record:
        return by(implementation, make_record(samples=[seconds], **fields))

    return make


Timed = Callable[..., Record]


def gains(records: list[Record]) -> list[float | None]:
    return [row.gain for row in rows_of_records(records)]


def test_the_first_is_one_and_the_others_are_held_against_it(timed: Timed) -> None:
    records = [timed("unfused", 4.0), timed("fused", 2.0), timed("compiled", 8.0)]
    assert gains(records) == [1.0, 2.0, 0.5]


def test_an_implementation_alone_has_nothing_to_be_held_against(timed: Timed) -> None:
    assert gains([timed("torch", 4.0)]) == [None]
    assert gains([]) == []


@pytest.mark.parametrize(
    "other",
    [{"op": "exp", "params": {"shape": [4]}}, {"phase": "backward"}, {"backend": "numpy-cpu"}, {"threads": 1},
     {"mode": "discrete"}, {"params": {"M": 1, "N": 128, "K": 64}}],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_what_differs_in_more_than_its_implementation_is_not_compared(timed: Timed, other: dict[str, Any]) -> None:
    assert gains([timed("unfused", 4.0), timed("fused", 2.0, **other)]) == [None, None]


def test_other_data_is_not_compared(timed: Timed) -> None:
    records = [timed("unfused", 4.0), by("fused", timed("fused", 2.0), seed=1)]
    assert gains(records) == [None, None]


def test_rows_of_one_case_need_not_stand_next_to_each_other(timed: Timed) -> None:
    records = [
        timed("unfused", 4.0), timed("unfused", 9.0, backend="numpy-cpu"), timed("fused", 2.0),
        timed("fused", 3.0, backend="numpy-cpu"),
    ]  # fmt: skip
    assert gains(records) == [1.0, 1.0, 2.0, 3.0]


def test_processes_are_summed_up_before_they_are_compared(timed: Timed) -> None:
    records = [by(name, timed(name, seconds), process=process)
               for name, times in (("unfused", (4.0, 4.0, 4.0)), ("fused", (2.0, 2.0, 2.0)))
               for process, seconds in enumerate(times)]  # fmt: skip
    assert gains(records) == [1.0, 2.0]


@pytest.mark.parametrize("status", ["wrong", "error", "timeout", "oom", "skipped"])
def test_where_one_failed_it_has_no_gain_and_where_the_first_did_nobody_has(
    timed: Timed, make_record: MakeRecord, status: str
) -> None:
    failed = by("fused", make_record(status=status, reason="broken"))
    assert gains([timed("unfused", 4.0), failed, timed("compiled", 2.0)]) == [1.0, None, 2.0]
    assert gains([failed, timed("unfused", 4.0), timed("compiled", 2.0)]) == [None, None, None]


def test_different_quantities_are_not_compared(
    timed: Timed, make_record: MakeRecord, make_measurement: MakeMeasurement
) -> None:
    other = by("fused", make_record(measurements=(make_measurement("throughput", "warm", [2.0]),)))
    cold = by("compiled", make_record(measurements=(make_measurement("latency", "cold", [2.0]),)))
    assert gains([timed("unfused", 4.0), other, cold]) == [1.0, None, None]


def test_a_time_of_nothing_is_no_infinite_gain(timed: Timed) -> None:
    assert gains([timed("unfused", 4.0), timed("fused", 0.0)]) == [1.0, None]


def record(implementation: str, seconds: float) -> Record:
    task = Task(Case.of("exp", {}, "forward"), "null", implementation, Settings(1, "quick", EFFORTS["quick"]))
    measured = Measurement("latency", "warm", "virtual", [seconds], 1, 0.0, 2, 0.1, "fixed")
    return Record(task, "ok", "", (measured,))


@given(st.lists(st.floats(1e-9, 1e3), min_size=2, max_size=6))
def test_a_gain_times_a_time_is_the_time_of_the_first(times: list[float]) -> None:
    found = gains([record(str(i), seconds) for i, seconds in enumerate(times)])
    assert [gain and gain * seconds for gain, seconds in zip(found, times, strict=True)] == pytest.approx(
        [times[0]] * len(times)
    )
