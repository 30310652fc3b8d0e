"""Conditions: which readings stand around a sample."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from opmark.schema import Conditions, SensorReading

PLACES = st.lists(st.integers(0, 50), max_size=8).map(sorted)


def conditions(places: list[int]) -> Conditions:
    return Conditions(tuple(SensorReading(at) for at in places))


def around(places: list[int], sample: int) -> list[int]:
    return [reading.at for reading in conditions(places).at(sample)]


def test_a_reading_between_two_samples_stands_at_both() -> None:
    """A reading after 5 samples is the one after sample 4 and before sample 5."""
    assert around([0, 5, 9], 4) == [0, 5]
    assert around([0, 5, 9], 5) == [5, 9]


def test_the_last_samples_have_only_a_reading_before_them() -> None:
    assert around([0, 5], 7) == [5]


def test_samples_before_the_first_reading_have_only_one_after_them() -> None:
    assert around([5], 0) == [5]


def test_without_readings_nothing_stands_around_a_sample() -> None:
    assert around([], 3) == []


@given(PLACES, st.integers(0, 60))
def test_no_reading_is_nearer_than_those_around_a_sample(places: list[int], sample: int) -> None:
    found = around(places, sample)
    before = [at for at in places if at <= sample]
    after = [at for at in places if at > sample]
    assert found == ([max(before)] if before else []) + ([min(after)] if after else [])


def test_of_several_readings_at_one_place_the_one_next_to_the_sample_counts() -> None:
    first, second = SensorReading(3, clock=1e9), SensorReading(3, clock=2e9)
    assert Conditions((first, second)).at(3) == (second,)
    assert Conditions((first, second)).at(2) == (first,)


def test_the_clocks_are_those_that_were_told() -> None:
    readings = (SensorReading(0, clock=1e9), SensorReading(1), SensorReading(2, clock=0.0), SensorReading(3, clock=2e9))
    assert Conditions(readings).clocks == [1e9, 2e9]
    assert Conditions().clocks == []


def test_conditions_survive_the_way_through_json() -> None:
    readings = (SensorReading(0, 1.5e9, 100.0, 40.0, ("power", "temperature")), SensorReading(7))
    seen = Conditions(readings, 1.9e9, 0.25, 3, 1.5, 0.5, None)
    assert msgspec.json.decode(msgspec.json.encode(seen), type=Conditions) == seen
