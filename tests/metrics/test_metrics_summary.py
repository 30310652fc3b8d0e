"""What one measurement says, by hand."""

from __future__ import annotations

import pytest

from opmark.metrics.latency import summarize
from opmark.schema import Measurement


def measurement(*samples: float) -> Measurement:
    return Measurement("latency", "warm", "monotonic", list(samples), 1, 0.0, 1, 0.0, "precise")


def test_a_summary_is_what_one_computes_by_hand():
    # Sorted: 1 2 3 4 5 6 7 8 9 100. Median 5.5; interval from the second to the ninth, covering 1 - 2 x 11 / 1024;
    # distances from the median 4.5 3.5 2.5 1.5 0.5 0.5 1.5 2.5 3.5 94.5, their median 2.5.
    found = summarize(measurement(3.0, 1.0, 2.0, 100.0, 4.0, 9.0, 8.0, 7.0, 6.0, 5.0))
    assert (found.median, found.low, found.high, found.samples) == (5.5, 2.0, 9.0, 10)
    assert found.coverage == pytest.approx(1 - 22 / 1024)
    assert found.noise == pytest.approx(1.4826 * 2.5 / 5.5)


def test_three_samples_give_their_range_and_say_how_little_that_is():
    found = summarize(measurement(2.0, 1.0, 4.0))
    assert (found.median, found.low, found.high, found.coverage) == (2.0, 1.0, 4.0, 0.75)


def test_one_sample_is_its_own_median():
    found = summarize(measurement(2.5))
    assert (found.median, found.low, found.high, found.coverage, found.noise, found.samples) == (2.5, 2.5, 2.5, 0, 0, 1)


def test_samples_of_nothing_are_nothing():
    found = summarize(measurement(*[0.0] * 20))
    assert (found.median, found.low, found.high, found.noise) == (0.0, 0.0, 0.0, 0.0)


def test_the_samples_are_not_sorted_in_place():
    taken = measurement(3.0, 1.0, 2.0)
    summarize(taken)
    assert taken.samples == [3.0, 1.0, 2.0]
