"""The interval of the median: what it promises, checked exactly and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from opmark.stats import Interval, median, median_interval, relative_half_width

durations = st.floats(1e-9, 1e3)
samples = st.lists(durations, min_size=1, max_size=60)
# Multiplying by a power of two is exact in floating point, so the laws hold to the last digit.
scales = st.integers(-20, 20).map(lambda power: 2.0**power)

SIZES = (5, 6, 20, 200, 2000)
# name: (draw, its true median)
DISTRIBUTIONS = {
    "normal": (lambda g, n: g.normal(10.0, 1.0, n), 10.0),
    "exponential": (lambda g, n: g.exponential(1.0, n), math.log(2)),
    "lognormal": (lambda g, n: g.lognormal(0.0, 1.5, n), 1.0),
}
REPEATS = {5: 3000, 6: 3000, 20: 3000, 200: 1500, 2000: 600}


def places(n: int, confidence: float = 0.95) -> tuple[int, int]:
    """Which order statistics the interval of n samples consists of."""
    interval = median_interval(range(n), confidence)
    return int(interval.low), int(interval.high)


@given(samples)
@settings(deadline=None)
def test_the_interval_holds_the_median(values):
    low, high, _ = median_interval(values)
    assert low <= median(values) <= high


@given(samples)
@settings(deadline=None)
def test_the_ends_are_samples(values):
    low, high, _ = median_interval(values)
    assert low in values
    assert high in values


@given(samples, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_samples_does_not_matter(values, random):
    shuffled = random.sample(values, len(values))
    assert median_interval(shuffled) == median_interval(values)


@given(samples, scales)
@settings(deadline=None)
def test_scaling_the_samples_scales_the_interval(values, scale):
    low, high, coverage = median_interval(values)
    assert median_interval([scale * value for value in values]) == (scale * low, scale * high, coverage)


@given(samples, scales)
@settings(deadline=None)
def test_the_relative_width_does_not_depend_on_the_unit(values, scale):
    assert relative_half_width([scale * value for value in values]) == relative_half_width(values)


@given(samples)
@settings(deadline=None)
def test_more_confidence_is_never_narrower(values):
    narrow, wide = median_interval(values, 0.5), median_interval(values, 0.99)
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high
    assert narrow.coverage <= wide.coverage


@pytest.mark.parametrize("n", [*range(1, 60), 199, 998, 999])
def test_the_coverage_is_the_binomial_one(n):
    low, high = places(n)
    assert low == n - 1 - high, "as many samples are left out below as above"
    # The median is inside when neither all but `low` samples lie above it nor all but `low` below it.
    exact = 1 - 2 * binom.cdf(low, n, 0.5)
    assert median_interval(range(n)).coverage == pytest.approx(max(0.0, exact), abs=1e-9)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_no_narrower_pair_would_do_below_a_thousand_samples(confidence):
    for n in range(8, 1000, 7):
        low, _ = places(n, confidence)
        assert 1 - 2 * binom.cdf(low, n, 0.5) >= confidence
        assert low + 1 >= (n + 1) // 2 or 1 - 2 * binom.cdf(low + 1, n, 0.5) < confidence


@pytest.mark.parametrize("n", [1000, 1001, 1500, 2000, 10_000, 100_001])
def test_from_a_thousand_samples_on_it_covers_enough_and_is_wide_by_a_rank_at_most(n):
    low, high = places(n)
    assert low == n - 1 - high
    assert 1 - 2 * binom.cdf(low, n, 0.5) >= 0.95
    assert 1 - 2 * binom.cdf(low + 2, n, 0.5) < 0.95


def test_with_fewer_than_six_samples_it_is_the_whole_range_and_says_how_little_that_covers():
    for n in range(1, 6):
        assert places(n) == (0, n - 1)
        assert median_interval(range(n)).coverage == pytest.approx(1 - 2 * 0.5**n)
    assert median_interval(range(5)).coverage < 0.95 <= median_interval(range(6)).coverage


def test_a_single_sample_covers_nothing():
    assert median_interval([3.0]) == Interval(3.0, 3.0, 0.0)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("n", SIZES)
def test_the_true_median_lies_inside_as_often_as_promised(n, name):
    draw, truth = DISTRIBUTIONS[name]
    generator, repeats = np.random.default_rng(20240 + n), REPEATS[n]
    inside = 0
    for _ in range(repeats):
        low, high, coverage = median_interval(draw(generator, n).tolist())
        inside += low <= truth <= high
    # Four standard deviations of a share counted so often; the seed is fixed, so this cannot flicker.
    slack = 4 * math.sqrt(coverage * (1 - coverage) / repeats)
    assert inside / repeats == pytest.approx(coverage, abs=slack)


@given(st.lists(durations, min_size=1, max_size=5))
@settings(deadline=None)
def test_fewer_than_six_samples_have_no_relative_width(values):
    assert relative_half_width(values) == math.inf


@given(st.lists(durations, min_size=6, max_size=60))
@settings(deadline=None)
def test_six_samples_and_more_have_one(values):
    low, high, _ = median_interval(values)
    assert relative_half_width(values) == (high - low) / 2 / median(values)
    assert math.isfinite(relative_half_width(values))


def test_equal_samples_have_no_width():
    assert relative_half_width([2.0] * 6) == 0.0


def test_the_relative_width_by_hand():
    # Ten samples: the second smallest to the second largest, over the median of 5.5.
    assert median_interval(range(1, 11)) == (2, 9, pytest.approx(1 - 2 * 11 / 1024))
    assert relative_half_width(range(1, 11)) == 3.5 / 5.5


def test_a_median_of_zero_has_no_relative_width():
    assert relative_half_width([0.0] * 20) == math.inf
