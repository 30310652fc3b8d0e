"""What the measurements of one quantity say, by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.schema import Conditions, Measurement, SensorReading
from opmark.stats import log_interval, median_interval
from opmark.stats.measurement import cycles, summarize


def measurement(*samples: float, readings: tuple[SensorReading, ...] = ()) -> Measurement:
    return Measurement(
        "latency", "warm", "monotonic", list(samples), 1, 0.0, 1, 0.0, "precise", conditions=Conditions(readings)
    )


def test_a_summary_is_what_one_computes_by_hand():
    # Sorted: 1 2 3 4 5 6 7 8 9 100. Median 5.5; interval from the second to the ninth, covering 1 - 2 x 11 / 1024;
    # distances from the median 4.5 3.5 2.5 1.5 0.5 0.5 1.5 2.5 3.5 94.5, their median 2.5.
    found = summarize([measurement(3.0, 9.0, 1.0, 8.0, 2.0, 100.0, 4.0, 7.0, 5.0, 6.0)])
    assert (found.median, found.low, found.high, found.samples) == (5.5, 2.0, 9.0, 10)
    assert found.coverage == pytest.approx(1 - 22 / 1024)
    assert found.noise == pytest.approx(1.4826 * 2.5 / 5.5)


def test_three_samples_give_their_range_and_say_how_little_that_is():
    found = summarize([measurement(2.0, 1.0, 4.0)])
    assert (found.median, found.low, found.high, found.coverage) == (2.0, 1.0, 4.0, 0.75)


def test_one_sample_is_its_own_median():
    found = summarize([measurement(2.5)])
    assert (found.median, found.low, found.high, found.coverage, found.noise, found.samples) == (2.5, 2.5, 2.5, 0, 0, 1)


def test_samples_of_nothing_are_nothing():
    found = summarize([measurement(*[0.0] * 20)])
    assert (found.median, found.low, found.high, found.noise) == (0.0, 0.0, 0.0, 0.0)


def test_the_samples_are_not_sorted_in_place():
    taken = measurement(3.0, 1.0, 2.0)
    summarize([taken])
    assert taken.samples == [3.0, 1.0, 2.0]


def test_several_processes_have_the_geometric_mean_of_their_medians_and_its_interval() -> None:
    found = summarize([measurement(1.0, 2.0, 30.0), measurement(4.0), measurement(1.0, 1.0)])
    assert (found.median, found.processes, found.samples, found.fastest) == (pytest.approx(2.0), 3, 6, 1.0)
    assert (found.low, found.high, found.coverage) == log_interval([2.0, 4.0, 1.0])


def test_the_noise_of_several_processes_is_that_of_the_one_in_the_middle() -> None:
    quiet, usual, loud = (summarize([m]) for m in NOISY)
    assert quiet.noise < usual.noise < loud.noise
    assert summarize(NOISY).noise == usual.noise


NOISY = [measurement(*(10 + spread * i for i in range(-3, 4))) for spread in (0.1, 0.2, 1.0)]


medians = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=8)


@given(medians, st.integers(1, 50))
@settings(deadline=None)
def test_more_samples_in_a_process_do_not_narrow_the_interval_over_processes(values: list[float], count: int) -> None:
    few = summarize([measurement(value) for value in values])
    many = summarize([measurement(*[value] * count) for value in values])
    assert (few.low, few.high) == (many.low, many.high)


@given(medians)
@settings(deadline=None)
def test_the_order_of_the_processes_does_not_matter(values: list[float]) -> None:
    one, other = (summarize([measurement(value) for value in order]) for order in (values, values[::-1]))
    assert one.median == pytest.approx(other.median)
    assert one.low == pytest.approx(other.low)
    assert one.high == pytest.approx(other.high)


def test_one_process_has_the_interval_of_its_samples() -> None:
    samples = [float(i) for i in range(1, 31)]
    random.Random(2).shuffle(samples)
    found = summarize([measurement(*samples)])
    assert (found.low, found.high, found.coverage) == median_interval(samples)
    assert found.processes == 1


def test_samples_that_follow_each_other_have_a_wider_interval() -> None:
    ramp = [float(i) for i in range(1, 31)]
    found, plain = summarize([measurement(*ramp)]), median_interval(ramp)
    assert found.low < plain.low < plain.high < found.high
    assert found.coverage < plain.coverage


@given(st.lists(st.floats(0.0, 1e3), min_size=1, max_size=20))
@settings(deadline=None)
def test_whatever_the_processes_the_number_lies_inside_its_interval(values: list[float]) -> None:
    found = summarize([measurement(value) for value in values])
    assert found.low <= found.median <= found.high


@given(st.integers(1, 10), st.integers(1, 10), st.floats(1.01, 3.0))
@settings(deadline=None)
def test_so_it_does_if_processes_are_in_two_states(quick: int, slow: int, ratio: float) -> None:
    """The median of the medians of four quick and one slow process lay outside of the interval of their mean."""
    found = summarize([measurement(1e-5)] * quick + [measurement(1e-5 * ratio)] * slow)
    assert found.low <= found.median <= found.high


# Cycles.


def test_cycles_are_the_time_at_the_clock_of_each_sample() -> None:
    readings = (SensorReading(0, clock=1e9), SensorReading(2, clock=2e9), SensorReading(4, clock=1e9))
    # Between two readings the mean counts: 1.5e9 for all four.
    assert cycles(measurement(2.0, 2.0, 4.0, 4.0, readings=readings)) == 1.5e9 * 3.0


def test_a_clock_that_was_read_once_is_that_of_all_samples() -> None:
    assert cycles(measurement(1.0, 2.0, 3.0, readings=(SensorReading(0, clock=2.0),))) == 4.0


def test_a_slower_clock_makes_more_seconds_and_the_same_cycles() -> None:
    fast = measurement(*[1e-3] * 5, readings=(SensorReading(0, clock=2e9), SensorReading(5, clock=2e9)))
    slow = measurement(*[2e-3] * 5, readings=(SensorReading(0, clock=1e9), SensorReading(5, clock=1e9)))
    assert cycles(fast) == cycles(slow) == 2e6


def test_without_a_clock_there_are_no_cycles() -> None:
    assert cycles(measurement(1.0)) is None
    assert cycles(measurement(1.0, readings=(SensorReading(0, power=100.0),))) is None
    assert summarize([measurement(1.0)]).cycles is None


def test_the_cycles_of_several_processes_are_those_of_the_one_in_the_middle() -> None:
    found = [measurement(value, readings=(SensorReading(0, clock=10.0),)) for value in (1.0, 5.0, 2.0)]
    assert summarize(found).cycles == 20.0
    assert summarize([*found, measurement(100.0)]).cycles == 20.0


def test_a_process_without_samples_says_nothing():
    assert summarize([measurement(1.0, 2.0, 3.0), measurement()]) == summarize([measurement(1.0, 2.0, 3.0)])


@pytest.mark.parametrize("count", [1, 2])
def test_without_samples_there_are_no_numbers(count):
    found = summarize([measurement()] * count)
    assert (found.samples, found.cycles) == (0, None)
    assert all(number != number for number in (found.median, found.low, found.high, found.fastest))
