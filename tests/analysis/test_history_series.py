"""Stored figures as series."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from nights import FACTS, case, record, run_of

from opmark.analysis.environment import machine_of
from opmark.analysis.history import ALL, MachineSeries, at, lines_of
from opmark.schema import Environment, Record
from opmark.store.record_codec import figures_of

pytestmark = pytest.mark.verdicts

EXP = case()
HERE = Environment.of(FACTS)
DEVICE = [("device_time", "cold"), ("device_time", "warm"), ("latency", "warm")]


def lines(
    *runs: list[Record], quantity: str = "", facts: dict[str, dict[str, Any]] | None = None
) -> list[MachineSeries]:
    known = {key: machine_of(one) for key, one in ({HERE.id: HERE.facts} if facts is None else facts).items()}
    figures = [f for i, records in enumerate(runs) for r in records for f in figures_of(run_of(i).id, r)]
    return lines_of(figures, {run_of(i).id: at(run_of(i)) for i in range(len(runs))}, known, quantity)


def made(seconds: float | None = 1e-3, **fields: Any) -> Record:
    return record(EXP, seconds, fields.pop("environment", HERE.id), **fields)


def test_processes_of_a_run_are_one_value_with_an_interval() -> None:
    (line,) = lines([made(1e-3, process=0), made(4e-3, process=1)], [made(3e-3)])
    first, second = (value.point for value in line.values)
    assert first.value == pytest.approx(2e-3)  # geometric
    assert first.processes == 2
    assert first.low is not None
    assert first.high is not None
    assert first.low < 2e-3 < first.high
    assert (second.value, second.low, second.high) == (pytest.approx(3e-3), None, None)
    assert line.values[0].medians == (1e-3, 4e-3)


def test_what_failed_is_told_and_is_no_value() -> None:
    (line,) = lines([made()], [made(None, status="timeout")], [made(None, status="error", environment="")], [made()])
    assert len(line.values) == 2
    assert [(outage.run.id, outage.status) for outage in line.outages] == [
        (run_of(1).id, "timeout"), (run_of(2).id, "error"),
    ]  # fmt: skip


def test_what_was_skipped_is_no_outage() -> None:
    (line,) = lines([made()], [made(None, status="skipped")])
    assert line.outages == []


def test_a_number_of_the_scheduler_is_no_value() -> None:
    spoilt = msgspec.structs.replace(made(cautions=["preempted"]), status="disturbed")
    (line,) = lines([made()], [made(cautions=["preempted"])], [made(cautions=["loaded"])], [spoilt])
    assert [value.point.run.id for value in line.values] == [run_of(0).id, run_of(2).id]
    assert [outage.status for outage in line.outages] == ["preempted"] * 2


def test_a_number_that_nothing_has_verified_is_a_value() -> None:
    (line,) = lines([made()], [msgspec.structs.replace(made(), status="unchecked")])
    assert len(line.values) == 2


@pytest.mark.parametrize("seconds", [0.0, math.inf, math.nan])
def test_a_number_that_has_no_logarithm_is_no_value(seconds: float) -> None:
    (line,) = lines([made()], [made(seconds)])
    assert len(line.values) == 1


def test_the_headline_is_followed_unless_another_quantity_is_asked_for() -> None:
    runs = [[made(keys=DEVICE)], [made(keys=DEVICE)], [made(keys=DEVICE[2:])]]
    (line,) = lines(*runs)
    assert (line.series.quantity, line.series.cache, len(line.values)) == ("device_time", "cold", 2)
    (line,) = lines(*runs, quantity="latency")
    assert len(line.values) == 3
    assert len(lines(*runs, quantity="device_time")) == 2
    assert len(lines(*runs, quantity=ALL)) == 3
    assert lines(*runs, quantity="energy") == []


def test_backends_and_threads_are_series_of_their_own() -> None:
    found = lines([made(), made(backend="numpy-cpu"), made(threads=4)])
    assert {(line.series.backend, line.series.threads) for line in found} == {
        ("torch-cpu", 2), ("numpy-cpu", 2), ("torch-cpu", 4),
    }  # fmt: skip


def test_a_version_is_no_other_machine_and_a_chip_is() -> None:
    newer, other = Environment.of(FACTS | {"torch": "3"}), Environment.of(FACTS | {"gpu": "a GPU", "device": "cuda"})
    facts = {one.id: one.facts for one in (HERE, newer, other)}
    runs = [[made()], [made(environment=newer.id)], [made(environment=other.id)]]
    assert [(line.chip, len(line.values)) for line in lines(*runs, facts=facts)] == [("a processor", 2), ("a GPU", 1)]


def test_figures_of_runs_that_do_not_count_are_left_out() -> None:
    figures = list(figures_of(run_of(7).id, made()))
    assert lines_of(figures, {run_of(0).id: at(run_of(0))}, {}) == []


def test_machines_of_one_chip_differ_by_cores_and_clock() -> None:
    """Two sizes of a virtual machine are no line; a kernel that reads the clock a little higher is the same."""
    facts = FACTS | {"cores": 8, "max_mhz": 3400.0}
    assert machine_of(facts) == machine_of(facts | {"max_mhz": 3401.2, "torch": "3"})
    assert len({machine_of(facts | more) for more in ({}, {"cores": 4}, {"max_mhz": 2600.0}, {"device": "cuda"})}) == 4
