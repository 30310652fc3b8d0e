"""NoiseFloor: shares over all cases, and the floor of a time."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.schema.machine import Floor, NoiseFloor

TIMES = st.floats(1e-9, 1e3)
KEY = ("latency", "warm")


def noise(*floors: Floor, labelings: int = 16) -> NoiseFloor:
    return NoiseFloor("Fast 9000", "null", 2, "2030-01-01T00:00:00.000+00:00", 10, labelings, list(floors))


def floor(seconds: float = 1e-6, between: float = 0.01, verdicts: int = 0, naive: int = 0) -> Floor:
    return Floor("add", "shape=[1]", seconds, between, 0.02, verdicts, naive)


def test_the_share_of_false_verdicts_is_that_of_all_labelings_of_all_cases() -> None:
    found = noise(floor(verdicts=1, naive=8), floor(verdicts=3, naive=16))
    assert found.false_verdicts == 4 / 32
    assert found.naive_verdicts == 24 / 32


def test_without_a_case_there_is_no_false_verdict() -> None:
    assert (noise().false_verdicts, noise().naive_verdicts) == (0, 0)


@pytest.mark.parametrize(("seconds", "between"), [(1e-9, 0.05), (1e-6, 0.05), (9e-6, 0.05), (11e-6, 0.01), (1, 0.01)])
def test_the_floor_of_a_time_is_that_of_the_case_nearest_by_factor(seconds: float, between: float) -> None:
    """Between 1 and 100 µs the middle is 10, not 50."""
    assert noise(floor(1e-6, between=0.05), floor(1e-4, between=0.01)).floor_for(seconds, *KEY) == between


@given(st.lists(TIMES, min_size=1, max_size=8, unique=True), TIMES)
def test_no_other_case_is_nearer_by_factor(times: list[float], seconds: float) -> None:
    found = noise(*(floor(time, between=time) for time in times)).floor_for(seconds, *KEY)

    def factor(time: float) -> float:
        return max(time / seconds, seconds / time)

    assert found is not None
    assert found in times
    assert factor(found) <= min(map(factor, times)) * (1 + 1e-9)


def test_a_floor_survives_the_way_through_json() -> None:
    found = noise(floor(1 / 3, 1e-17, 2, 9))
    assert msgspec.json.decode(msgspec.json.encode(found), type=NoiseFloor) == found


def test_without_a_case_there_is_no_floor() -> None:
    assert (noise().largest_for(*KEY), noise().floor_for(1e-6, *KEY)) == (None, None)


def test_each_quantity_has_its_own_floor() -> None:
    """On a device the time of a kernel is steadier than the latency of the call."""
    device, call = (msgspec.structs.replace(floor(between=by), quantity=name, cache=cache) for name, cache, by in (
        ("device_time", "cold", 0.01), ("latency", "warm", 0.08),
    ))  # fmt: skip
    found = noise(device, call)
    assert [found.floor_for(1e-6, *key) for key in (("device_time", "cold"), KEY)] == [0.01, 0.08]
    assert [found.largest_for(*key) for key in (("device_time", "cold"), KEY)] == [0.01, 0.08]
    assert found.floor_for(1e-6, "latency", "cold") is None


def test_a_floor_that_was_stored_without_its_quantity_is_of_the_headline_and_stands_for_all() -> None:
    stored = b'{"op": "add", "params": "", "seconds": 1.0, "between": 0.03, "within": 0.0}'
    assert noise(msgspec.json.decode(stored, type=Floor)).floor_for(1.0, *KEY) == 0.03


@pytest.mark.parametrize("seconds", [0.0, -1e-6, float("nan"), float("inf")])
def test_a_case_without_a_time_is_nobodys_floor(seconds: float) -> None:
    assert noise(floor(seconds, between=0.5), floor(1.0, between=0.01)).floor_for(1e-6, *KEY) == 0.01
    assert noise(floor(seconds, between=0.5)).floor_for(5e-324, *KEY) is None
