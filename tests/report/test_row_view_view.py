"""A record as plain data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from opmark.analysis.rows import rows_of_records
from opmark.report.row_view import row_view
from opmark.schema import Caution, Compilation, Conditions, CrossCheck, Kernel, Measurement, Record, SensorReading

MakeRecord = Callable[..., Record]
MakeMeasurement = Callable[..., Measurement]


def view_of(*records: Record) -> dict[str, Any]:
    return row_view(rows_of_records(records)[0])


def test_the_keys_that_are_promised_are_there(make_record: MakeRecord) -> None:
    record = make_record()
    seen = row_view(rows_of_records([record], "a run")[0])
    promised = ("case", "op", "params", "phase", "backend", "status", "reason")
    assert [seen[key] for key in promised] == [
        record.task.case.id, "matmul", {"M": 256, "N": 128, "K": 64, "dtype": "float32"}, "forward", "null", "ok", "",
    ]  # fmt: skip
    assert seen["run"] == "a run"


def test_a_quantity_has_its_median_in_seconds_its_interval_and_its_count(make_record: MakeRecord) -> None:
    quantities = view_of(make_record())["quantities"]
    assert {name: list(by_cache) for name, by_cache in quantities.items()} == {"latency": ["warm"]}
    values = quantities["latency"]["warm"]
    assert values["median"] == 1.03e-3
    assert values["interval"] == [1.00e-3, 1.06e-3]
    assert values["samples"] == 7
    assert 0.95 <= values["coverage"] <= 1


def test_rates_are_computed_from_the_cost_and_the_median(make_record: MakeRecord) -> None:
    found = view_of(make_record())["metrics"]
    assert found["bytes_per_second"] == pytest.approx(2.06e9)
    assert found["flops_per_second"] == pytest.approx(4.12e9)


@pytest.mark.parametrize("status", ["wrong", "skipped", "error", "timeout", "oom"])
def test_a_record_without_a_number_has_the_same_keys_and_its_reason(make_record: MakeRecord, status: str) -> None:
    seen = view_of(make_record(status=status, reason="because"))
    assert seen.keys() == view_of(make_record()).keys()
    assert (seen["status"], seen["reason"], seen["quantities"]) == (status, "because", {})
    assert set(seen["metrics"].values()) == {None}
    assert (seen["memory"], seen["cost"]) == (None, None)


def test_the_settings_and_the_surroundings_are_part_of_it(make_record: MakeRecord) -> None:
    seen = view_of(make_record(threads=3))
    assert (seen["threads"], seen["effort"], seen["implementation"]) == (3, "quick", "null")
    assert seen["tags"] == ["llm"]
    assert seen["memory"]["peak"] == 3 * 2**20
    assert seen["verification"]["checked"] == "full"
    assert seen["environment"] == "0123456789abcdef"
    assert (seen["started"], seen["duration"]) == ("2030-01-01T00:00:00.000+00:00", 0.5)


def test_doubts_are_part_of_the_quantity(make_record: MakeRecord) -> None:
    seen = view_of(make_record(cautions=[Caution("noisy", "m", "h")]))
    assert list(seen["quantities"]["latency"]["warm"]["warnings"]) == [{"code": "noisy", "message": "m", "hint": "h"}]


def test_a_view_is_json_and_nothing_is_rounded(make_record: MakeRecord) -> None:
    seen = view_of(make_record(samples=[1 / 3, 2 / 3, 1e-17]))
    again = json.loads(msgspec.json.encode(seen))
    assert again["quantities"]["latency"]["warm"]["median"] == 1 / 3
    assert again["quantities"]["latency"]["warm"]["interval"] == [1e-17, 2 / 3]


# Several quantities, caches and processes.


def test_quantities_are_found_by_name_and_cache_and_the_first_is_the_headline(
    make_record: MakeRecord, make_measurement: MakeMeasurement
) -> None:
    record = make_record(
        measurements=(
            make_measurement("device_time", "cold", [3e-6]),
            make_measurement("device_time", "warm", [2e-6]),
            make_measurement("latency", "warm", [9e-6]),
        )
    )
    seen = view_of(record)
    medians = {(name, cache): q["median"] for name, by in seen["quantities"].items() for cache, q in by.items()}
    assert medians == {("device_time", "cold"): 3e-6, ("device_time", "warm"): 2e-6, ("latency", "warm"): 9e-6}
    assert seen["headline"] == ["device_time", "cold"]
    assert seen["metrics"]["flops_per_second"] == pytest.approx(record.cost.flops / 3e-6)  # type: ignore[union-attr]


def test_energy_is_in_joules_and_makes_no_rate(make_record: MakeRecord, make_measurement: MakeMeasurement) -> None:
    seen = view_of(make_record(measurements=(make_measurement("energy", "warm", [0.5]),)))
    assert seen["quantities"]["energy"]["warm"]["unit"] == "J"
    assert (seen["metrics"]["bytes_per_second"], seen["metrics"]["flops_per_second"]) == (None, None)


def test_kernels_are_told_where_they_are_known(make_record: MakeRecord, make_measurement: MakeMeasurement) -> None:
    known = make_measurement("device_time", "warm", [2e-6], kernels=(Kernel("gemm", 2.0, 2e-6),))
    seen = view_of(make_record(measurements=(known, make_measurement("latency", "warm", [9e-6]))))
    assert list(seen["quantities"]["device_time"]["warm"]["kernels"]) == [{"name": "gemm", "count": 2.0, "time": 2e-6}]
    assert "kernels" not in seen["quantities"]["latency"]["warm"]


def test_the_way_a_number_was_made_is_told(make_record: MakeRecord, make_measurement: MakeMeasurement) -> None:
    measurement = make_measurement(
        "device_span", "cold", [2e-6], timer="events", control="64 MiB overwritten", check=CrossCheck("graph", 3e-6),
    )  # fmt: skip
    (seen,) = view_of(make_record(measurements=(measurement,)))["quantities"]["device_span"].values()
    assert (seen["timer"], seen["cache_control"], seen["stop"]) == ("events", "64 MiB overwritten", "precise")
    assert seen["check"] == {"timer": "graph", "median": 3e-6}
    assert seen["fastest"] == 2e-6


def test_conditions_are_ranges_and_the_worst_of_all_processes(
    make_record: MakeRecord, make_measurement: MakeMeasurement
) -> None:
    first = Conditions(
        (SensorReading(0, 1.5e9, 100.0, 40.0), SensorReading(3, 1.0e9, 300.0, 60.0, ("power",))), 1.5e9, 1.0, 3, 0.5
    )
    second = Conditions((SensorReading(0, 1.4e9),), 1.5e9, 1.0, 7, 0.25, others=0.5)
    records = [
        make_record(measurements=(make_measurement("latency", "warm", [1e-3] * 4, conditions=found),), process=i)
        for i, found in enumerate((first, second))
    ]
    seen = view_of(*records)["quantities"]["latency"]["warm"]["conditions"]
    assert seen == {
        "clock": [1.0e9, 1.5e9], "power": [100.0, 300.0], "temperature": [40.0, 60.0], "throttle": ["power"],
        "throttled_samples": 4, "switches": 7, "load": 0.5, "others": 0.5, "steal": None,
    }  # fmt: skip


def test_without_sensors_there_is_no_range(make_record: MakeRecord) -> None:
    seen = view_of(make_record())["quantities"]["latency"]["warm"]
    assert (seen["conditions"]["clock"], seen["conditions"]["throttle"], seen["cycles"]) == (None, [], None)


def test_several_processes_are_one_view(make_record: MakeRecord, make_measurement: MakeMeasurement) -> None:
    records = [
        make_record(
            measurements=(make_measurement("latency", "warm", [value] * 7),), process=i, notes=("a", f"b{i}"),
        )
        for i, value in enumerate((1.0e-3, 1.2e-3, 1.1e-3))
    ]  # fmt: skip
    seen = view_of(*records)
    values = seen["quantities"]["latency"]["warm"]
    assert (seen["processes"], values["samples"]) == (3, 21)
    assert values["median"] == pytest.approx((1.0 * 1.2 * 1.1) ** (1 / 3) * 1e-3, rel=1e-12)  # their geometric mean
    assert values["process_medians"] == [1.0e-3, 1.2e-3, 1.1e-3]
    assert values["interval"][0] < 1.0e-3 < 1.2e-3 < values["interval"][1]
    assert seen["duration"] == 1.5
    assert seen["notes"] == ["a", "b0", "b1", "b2"]


def test_gradients_of_some_inputs_and_the_mode_are_told(make_record: MakeRecord) -> None:
    seen = view_of(make_record(phase="backward", wrt=("b",), mode="discrete"))
    assert (seen["phase"], seen["wrt"], seen["mode"]) == ("backward", ["b"], "discrete")


def test_compiling_is_apart_from_running_and_of_several_processes_the_median(make_record: MakeRecord) -> None:
    times = ((1.0, 0.1), (3.0, None), (2.0, 0.3))
    records = [make_record(process=i, compilation=Compilation(*both, graphs=1)) for i, both in enumerate(times)]
    found = view_of(*records)["compilation"]
    assert (found["cold"], found["cached"], found["graphs"]) == (2.0, 0.2, 1)
    assert view_of(make_record())["compilation"] is None
