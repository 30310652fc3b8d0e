"""A record as plain data."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from opmark.report.view import view
from opmark.schema import Caution, Record

MakeRecord = Callable[..., Record]


def test_the_keys_that_are_promised_are_there(make_record: MakeRecord) -> None:
    record = make_record()
    seen = view(record, "a run")
    promised = ("case", "op", "params", "phase", "backend", "status", "reason")
    assert [seen[key] for key in promised] == [
        record.task.case.id, "matmul", {"M": 256, "N": 128, "K": 64, "dtype": "float32"}, "forward", "null", "ok", "",
    ]  # fmt: skip
    assert seen["run"] == "a run"


def test_a_quantity_has_its_median_in_seconds_its_interval_and_its_count(make_record: MakeRecord) -> None:
    (quantity,) = view(make_record())["quantities"].items()
    name, values = quantity
    assert name == "latency"
    assert values["median"] == 1.03e-3
    assert values["interval"] == [1.00e-3, 1.06e-3]
    assert values["samples"] == 7
    assert 0.95 <= values["coverage"] <= 1


def test_rates_are_computed_from_the_cost_and_the_median(make_record: MakeRecord) -> None:
    found = view(make_record())["metrics"]
    assert found["bytes_per_second"] == pytest.approx(2.06e9)
    assert found["flops_per_second"] == pytest.approx(4.12e9)


@pytest.mark.parametrize("status", ["wrong", "skipped", "error", "timeout", "oom"])
def test_a_record_without_a_number_has_the_same_keys_and_its_reason(make_record: MakeRecord, status: str) -> None:
    seen = view(make_record(status=status, reason="because"))
    assert seen.keys() == view(make_record()).keys()
    assert (seen["status"], seen["reason"], seen["quantities"]) == (status, "because", {})
    assert seen["metrics"] == {"bytes_per_second": None, "flops_per_second": None}
    assert (seen["memory"], seen["cost"]) == (None, None)


def test_the_settings_and_the_surroundings_are_part_of_it(make_record: MakeRecord) -> None:
    seen = view(make_record(threads=3))
    assert (seen["threads"], seen["effort"], seen["implementation"]) == (3, "quick", "null")
    assert seen["tags"] == ["llm"]
    assert seen["memory"]["peak"] == 3 * 2**20
    assert seen["verification"]["checked"] == "full"
    assert seen["environment"] == "0123456789abcdef"
    assert (seen["started"], seen["duration"]) == ("2030-01-01T00:00:00.000+00:00", 0.5)


def test_doubts_are_part_of_the_quantity(make_record: MakeRecord) -> None:
    seen = view(make_record(cautions=[Caution("noisy", "m", "h")]))
    assert list(seen["quantities"]["latency"]["warnings"]) == [{"code": "noisy", "message": "m", "hint": "h"}]


def test_a_view_is_json_and_nothing_is_rounded(make_record: MakeRecord) -> None:
    seen = view(make_record(samples=[1 / 3, 2 / 3, 1e-17]))
    again = json.loads(msgspec.json.encode(seen))
    assert again["quantities"]["latency"]["median"] == 1 / 3
    assert again["quantities"]["latency"]["interval"] == [1e-17, 2 / 3]
