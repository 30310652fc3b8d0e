"""Records and their measurements."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from opmark.schema import (  # fmt: skip
    EFFORTS,
    FAILED,
    Case,
    Caution,
    Conditions,
    Cost,
    CrossCheck,
    Diagnosis,
    DiagnosisItem,
    Kernel,
    Measurement,
    Memory,
    Record,
    SensorReading,
    Settings,
    Status,
    Task,
    Verification,
)
from opmark.schema.record import MEASURED

SETTINGS = Settings(threads=2, effort="quick", sampling=EFFORTS["quick"])
CASE = Case.of("add", {"shape": [4], "dtype": "float32"}, "forward")
TASK = Task(CASE, "numpy-cpu", "numpy", SETTINGS)


def measured(quantity: str = "latency", samples: tuple[float, ...] = (1e-6, 2e-6)) -> Measurement:
    return Measurement(
        quantity, "warm", "monotonic", list(samples), 10, 1e-8, 20, 0.01, "precise", (Caution("noisy", "m"),)
    )


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        ("ok", False),
        ("skipped", False),
        ("wrong", True),
        ("error", True),
        ("timeout", True),
        ("oom", True),
        ("killed", True),
    ],
)
def test_a_skipped_task_has_not_failed_and_every_other_trouble_has(status, failed):
    assert Record(TASK, status).failed is failed
    assert (status in FAILED) is failed


def test_no_status_is_forgotten():
    assert set(get_args(Status)) == MEASURED | {"skipped"} | FAILED
    assert not MEASURED & FAILED


def test_a_measurement_is_found_by_its_quantity():
    first, second = measured("latency"), measured("host_time", (3e-6,))
    record = Record(TASK, "ok", measurements=(first, second))
    assert record.measurement() is first
    assert record.measurement("host_time") is second
    assert record.measurement("device_time") is None


def test_a_measurement_is_found_by_its_cache_too() -> None:
    warm = measured("device_time")
    cold = msgspec.structs.replace(warm, cache="cold", samples=[9.0])
    record = Record(TASK, "ok", measurements=(warm, cold))
    assert record.measurement("device_time", "cold") is cold
    assert record.measurement(cache="cold") is cold
    assert record.measurement("device_time") is warm
    assert record.measurement("latency", "cold") is None
    assert Record(TASK, "ok").measurement() is None


def test_what_is_known_of_a_measurement_survives_the_way_through_json() -> None:
    readings = (SensorReading(0, 1.5e9, 100.0, 40.0), SensorReading(2, None, None, None, ("power", "temperature")))
    measurement = msgspec.structs.replace(
        measured(), control="rotated", kernels=(Kernel("gemm", 2.0, 1e-6),), check=CrossCheck("events", 1e-6),
        conditions=Conditions(readings, 1.5e9, 0.5, 3, 0.1, 0.2, 0.3),
    )  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(measurement), type=Measurement) == measurement


# Samples that were taken while the clock was throttled.


def throttled(samples: int, *readings: SensorReading) -> list[int]:
    conditions = Conditions(readings)
    return msgspec.structs.replace(measured(), samples=[1.0] * samples, conditions=conditions).throttled


def test_without_readings_no_sample_is_marked() -> None:
    assert throttled(4) == []
    assert throttled(4, SensorReading(0), SensorReading(4)) == []


def test_a_sample_is_marked_by_the_reading_before_or_after_it() -> None:
    held = ("power",)
    assert throttled(6, SensorReading(0), SensorReading(2), SensorReading(4, throttle=held), SensorReading(6)) == [
        2,
        3,
        4,
        5,
    ]
    assert throttled(6, SensorReading(0), SensorReading(2), SensorReading(6, throttle=held)) == [2, 3, 4, 5]
    assert throttled(6, SensorReading(0, throttle=held), SensorReading(2), SensorReading(6)) == [0, 1]


def test_a_clock_that_is_held_all_the_time_marks_all() -> None:
    assert throttled(3, SensorReading(0, throttle=("hardware",)), SensorReading(3, throttle=("hardware",))) == [0, 1, 2]


def test_a_record_survives_the_way_through_json():
    record = Record(
        TASK, "ok", "because", (measured(),), Cost(1, 2, 3), Memory(4096, 10, "resident pages", 4096),
        Verification("scaled", "n", {"shape": [2]}, 1e-7, 2e-7, (1e-5, 1e-6), "torch", "same"), "env",
        "2020-01-01T00:00:00", "8x64 float32", True, ("energy: nobody counts it",), 0.5,
    )  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record


def test_a_cost_that_nobody_can_count_in_full_survives_the_way_through_json():
    record = Record(TASK, "ok", cost=Cost(None, 2, 3))
    assert msgspec.json.decode(msgspec.json.encode(record), type=Record).cost == Cost(None, 2, 3)


def test_a_record_of_before_there_were_calls_is_read():
    text = msgspec.json.encode(Record(TASK, "ok"))
    old = {key: value for key, value in msgspec.json.decode(text).items() if key not in ("called", "view")}
    found = msgspec.json.decode(msgspec.json.encode(old), type=Record)
    assert (found.called, found.view) == ("", False)


def test_a_status_that_does_not_exist_is_not_read():
    text = msgspec.json.encode(Record(TASK, "ok")).replace(b'"status":"ok"', b'"status":"fine"')
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Record)


@pytest.mark.parametrize(
    "other",
    [
        Task(Case.of("add", {"shape": [5], "dtype": "float32"}, "forward"), "numpy-cpu", "numpy", SETTINGS),
        Task(CASE, "torch-cpu", "numpy", SETTINGS),
        Task(CASE, "numpy-cpu", "other", SETTINGS),
        Task(CASE, "numpy-cpu", "numpy", msgspec.structs.replace(SETTINGS, threads=1)),
        Task(CASE, "numpy-cpu", "numpy", msgspec.structs.replace(SETTINGS, seed=1)),
        Task(CASE, "numpy-cpu", "numpy", msgspec.structs.replace(SETTINGS, verify=False)),
        Task(CASE, "numpy-cpu", "numpy", msgspec.structs.replace(SETTINGS, sampling=EFFORTS["standard"])),
        Task(CASE, "numpy-cpu", "numpy", msgspec.structs.replace(SETTINGS, quantities=("latency",))),
        Task(CASE, "numpy-cpu", "numpy", msgspec.structs.replace(SETTINGS, caches=("cold",))),
        Task(CASE, "numpy-cpu", "numpy", msgspec.structs.replace(SETTINGS, mode="discrete")),
        Task(CASE, "numpy-cpu", "numpy", msgspec.structs.replace(SETTINGS, timer="events")),
        Task(CASE, "numpy-cpu", "numpy", msgspec.structs.replace(SETTINGS, process=1)),
    ],
)
def test_a_task_with_any_difference_is_another_task(other):
    assert other.id != TASK.id


def test_the_processes_of_a_task_are_one_across_them() -> None:
    second = Task(CASE, "numpy-cpu", "numpy", msgspec.structs.replace(SETTINGS, process=1))
    assert second.across_processes == TASK.across_processes == TASK
    assert Task(CASE, "null", "numpy", SETTINGS).across_processes.id != TASK.id


def test_the_same_task_has_the_same_id():
    assert Task(CASE, "numpy-cpu", "numpy", SETTINGS).id == TASK.id


def test_a_diagnosis_is_ok_when_every_finding_is():
    good, bad = DiagnosisItem("load", True, "0.1"), DiagnosisItem("governor", False, "powersave")
    assert Diagnosis({}, [], [good]).ok
    assert not Diagnosis({}, [], [good, bad]).ok


@pytest.mark.parametrize("name", ["warmup_min", "warmup_max", "sample_time", "min_samples", "min_time", "max_time"])
def test_more_effort_is_never_less(name):
    quick, standard, thorough = (getattr(EFFORTS[effort], name) for effort in ("quick", "standard", "thorough"))
    assert quick <= standard <= thorough
    assert quick < thorough


@pytest.mark.parametrize("name", ["rel_ci", "warmup_agreement"])
def test_more_effort_asks_for_more_agreement(name):
    quick, standard, thorough = (getattr(EFFORTS[effort], name) for effort in ("quick", "standard", "thorough"))
    assert quick > standard > thorough > 0


@pytest.mark.parametrize("rule", EFFORTS.values())
def test_a_rule_does_not_contradict_itself(rule):
    assert 0 < rule.warmup_min < rule.warmup_max
    assert 0 < rule.min_time < rule.max_time
    assert rule.sample_time * rule.min_samples < rule.max_time, "the samples asked for fit into the budget"
    assert rule.min_samples >= 6, "fewer have no interval of 95 %"
