"""The interval of the median: its coverage, checked exactly and by simulation."""

from __future__ import annotations

import math
from random import Random
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from opmark.stats import (
    Interval,
    geometric_mean,
    log_interval,
    median_inflation,
    median_interval,
    relative_half_width,
)
from opmark.stats.interval import quantile

pytestmark = pytest.mark.verdicts

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
    """Return the order statistics that make the interval of n samples."""
    interval = median_interval(range(n), confidence)
    return int(interval.low), int(interval.high)


@given(samples)
@settings(deadline=None)
def test_the_interval_holds_the_median(values: list[float]) -> None:
    low, high, _ = median_interval(values)
    assert low <= median(values) <= high


@given(samples)
@settings(deadline=None)
def test_the_ends_are_samples(values: list[float]) -> None:
    low, high, _ = median_interval(values)
    assert low in values
    assert high in values


@given(samples, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_samples_does_not_matter(values: list[float], random: Random) -> None:
    shuffled = random.sample(values, len(values))
    assert median_interval(shuffled) == median_interval(values)


@given(samples, scales)
@settings(deadline=None)
def test_scaling_the_samples_scales_the_interval(values: list[float], scale: float) -> None:
    low, high, coverage = median_interval(values)
    assert median_interval([scale * value for value in values]) == (scale * low, scale * high, coverage)


@given(samples, scales)
@settings(deadline=None)
def test_the_relative_width_does_not_depend_on_the_unit(values: list[float], scale: float) -> None:
    assert relative_half_width([scale * value for value in values]) == relative_half_width(values)


@given(samples)
@settings(deadline=None)
def test_more_confidence_is_never_narrower(values: list[float]) -> None:
    narrow, wide = median_interval(values, 0.5), median_interval(values, 0.99)
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high
    assert narrow.coverage <= wide.coverage


@pytest.mark.parametrize("n", [*range(1, 60), 199, 998, 999])
def test_the_coverage_is_the_binomial_one(n: int) -> None:
    low, high = places(n)
    assert low == n - 1 - high, "as many samples are left out below as above"
    # The median is inside when neither all but `low` samples lie above it nor all but `low` below it.
    exact = 1 - 2 * binom.cdf(low, n, 0.5)
    assert median_interval(range(n)).coverage == pytest.approx(max(0.0, exact), abs=1e-9)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_no_narrower_pair_would_do_below_a_thousand_samples(confidence: float) -> None:
    for n in range(8, 1000, 7):
        low, _ = places(n, confidence)
        assert 1 - 2 * binom.cdf(low, n, 0.5) >= confidence
        assert low + 1 >= (n + 1) // 2 or 1 - 2 * binom.cdf(low + 1, n, 0.5) < confidence


@pytest.mark.parametrize("n", [1000, 1001, 1500, 2000, 10_000, 100_001])
def test_from_a_thousand_samples_on_it_covers_enough_and_is_wide_by_a_rank_at_most(n: int) -> None:
    low, high = places(n)
    assert low == n - 1 - high
    assert 1 - 2 * binom.cdf(low, n, 0.5) >= 0.95
    assert 1 - 2 * binom.cdf(low + 2, n, 0.5) < 0.95


def test_with_fewer_than_six_samples_it_is_the_whole_range_and_says_how_little_that_covers() -> None:
    for n in range(1, 6):
        assert places(n) == (0, n - 1)
        assert median_interval(range(n)).coverage == pytest.approx(1 - 2 * 0.5**n)
    assert median_interval(range(5)).coverage < 0.95 <= median_interval(range(6)).coverage


def test_a_single_sample_covers_nothing() -> None:
    assert median_interval([3.0]) == Interval(3.0, 3.0, 0.0)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("n", SIZES)
def test_the_true_median_lies_inside_as_often_as_promised(n: int, name: str) -> None:
    draw, truth = DISTRIBUTIONS[name]
    generator, repeats = np.random.default_rng(20240 + n), REPEATS[n]
    inside = 0
    for _ in range(repeats):
        low, high, coverage = median_interval(draw(generator, n).tolist())
        inside += low <= truth <= high
    # Four standard deviations of the share; the seed is fixed, so this is deterministic.
    slack = 4 * math.sqrt(coverage * (1 - coverage) / repeats)
    assert inside / repeats == pytest.approx(coverage, abs=slack)


@given(st.lists(durations, min_size=1, max_size=5))
@settings(deadline=None)
def test_fewer_than_six_samples_have_no_relative_width(values: list[float]) -> None:
    assert relative_half_width(values) == math.inf


@given(st.lists(durations, min_size=6, max_size=60))
@settings(deadline=None)
def test_six_samples_and_more_have_one_unless_they_are_worth_less(values: list[float]) -> None:
    low, high, coverage = median_interval(values, inflation=median_inflation(values))
    assert relative_half_width(values) == ((high - low) / 2 / median(values) if coverage >= 0.95 else math.inf)


def test_equal_samples_have_no_width() -> None:
    assert relative_half_width([2.0] * 6) == 0.0


def test_the_relative_width_by_hand() -> None:
    # Ten samples: the second smallest to the second largest, over the median of 5.5.
    assert median_interval(range(1, 11)) == (2, 9, pytest.approx(1 - 2 * 11 / 1024))
    assert relative_half_width([1, 10, 2, 9, 3, 8, 4, 7, 5, 6]) == 3.5 / 5.5
    # Taken in this order they are not ten witnesses.
    assert relative_half_width(range(1, 11)) == math.inf


def test_a_median_of_zero_has_no_relative_width_unless_all_is_zero() -> None:
    assert relative_half_width([0.0] * 14 + [1.0] * 6) == math.inf
    assert relative_half_width([0.0] * 15 + [1.0] * 5) == 0.0
    assert relative_half_width([0.0] * 20) == 0.0
    assert relative_half_width([0.0] * 5) == math.inf


# Samples that are not independent: AR(1) carries a share of a sample's deviation into the next one.


def coverage_at(carried: float, count: int, repeats: int, *, corrected: bool = True) -> float:
    """Return how often the 95 % interval of so many samples holds the true median."""
    draw = np.random.default_rng(7)
    fresh = draw.normal(size=(count + 100, repeats))
    samples = np.empty_like(fresh)
    samples[0] = fresh[0]
    for i in range(1, len(fresh)):
        samples[i] = carried * samples[i - 1] + math.sqrt(1 - carried**2) * fresh[i]
    inside = 0
    for one in np.exp(0.02 * samples[100:]).T.tolist():
        low, high, _ = median_interval(one, inflation=median_inflation(one) if corrected else 1.0)
        inside += low <= 1.0 <= high
    return inside / repeats


@pytest.mark.parametrize("carried", [0.0, 0.3, 0.6])
@pytest.mark.parametrize(("count", "repeats"), [(50, 2000), (100, 2000), (400, 1000)])
def test_the_interval_covers_the_median_of_correlated_samples(carried: float, count: int, repeats: int) -> None:
    """93 to 97 of a hundred are promised; of 50 independent samples, order statistics alone cover 96.7."""
    assert 0.925 <= coverage_at(carried, count, repeats) <= 0.98


def test_without_the_correction_it_would_not() -> None:
    assert coverage_at(0.6, 100, 1000, corrected=False) < 0.8


@given(samples)
@settings(deadline=None)
def test_an_interval_of_correlated_samples_still_holds_their_median(values: list[float]) -> None:
    low, high, coverage = median_interval(values, inflation=median_inflation(values))
    plain = median_interval(values)
    assert low <= plain.low <= median(values) <= plain.high <= high
    assert coverage <= plain.coverage


def test_outliers_and_ticks_are_no_correlation() -> None:
    draw = np.random.default_rng(3)
    independent = np.exp(0.01 * draw.normal(size=2000))
    assert median_inflation(independent.tolist()) < 1.2
    independent[100:110] *= 50
    assert median_inflation(independent.tolist()) < 1.2
    assert median_inflation([1.0] * 50 + [2.0] * 3) == 1.0


def test_samples_that_alternate_are_not_worth_more_than_independent_ones() -> None:
    assert median_inflation([1.0, 2.0] * 30) == 1.0


# Student's t, and the interval of a few values that spread by a factor


@pytest.mark.parametrize(
    ("probability", "freedom", "known"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.30265),
        (0.975, 4, 2.77645),
        (0.975, 9, 2.26216),
        (0.95, 5, 2.01505),
        (0.995, 10, 3.16927),
        (0.975, 10**9, 1.95996),
    ],
)
def test_quantiles_as_in_the_tables(probability: float, freedom: int, known: float) -> None:
    assert quantile(probability, freedom) == pytest.approx(known, rel=1e-5)


@given(st.floats(0.01, 0.99), st.integers(1, 200))
@settings(deadline=None)
def test_quantiles_are_symmetric_and_wider_with_less_freedom(probability: float, freedom: int) -> None:
    assert quantile(1 - probability, freedom) == pytest.approx(-quantile(probability, freedom), abs=1e-9)
    assert abs(quantile(probability, freedom + 1)) <= abs(quantile(probability, freedom)) + 1e-12


def test_the_interval_of_two_values_by_hand() -> None:
    # Logarithms -1 and 1: a mean of 0, a standard error of 1, and 12.7062 of those to each side.
    low, high, coverage = log_interval([math.exp(-1), math.exp(1)])
    assert (math.log(low), math.log(high)) == (pytest.approx(-12.7062, rel=1e-5), pytest.approx(12.7062, rel=1e-5))
    assert coverage == 0.95


few = st.lists(st.floats(1e-6, 1e-3), min_size=2, max_size=12)


@given(few)
@settings(deadline=None)
def test_the_geometric_mean_is_the_middle_by_factor(values: list[float]) -> None:
    low, high, _ = log_interval(values)
    mean = geometric_mean(values)
    assert mean == pytest.approx(math.exp(sum(map(math.log, values)) / len(values)))
    assert math.sqrt(low) * math.sqrt(high) == pytest.approx(mean)
    assert low <= mean <= high


@given(few, scales)
@settings(deadline=None)
def test_scaling_the_values_scales_the_interval_of_their_logarithms(values: list[float], scale: float) -> None:
    low, high, _ = log_interval(values)
    scaled = log_interval([scale * value for value in values])
    assert scaled[:2] == pytest.approx((scale * low, scale * high))


@given(few)
@settings(deadline=None)
def test_more_confidence_is_never_narrower_by_factor(values: list[float]) -> None:
    narrow, wide = log_interval(values, 0.5), log_interval(values, 0.99)
    assert wide.high / wide.low >= narrow.high / narrow.low * (1 - 1e-12)
    assert (narrow.coverage, wide.coverage) == (0.5, 0.99)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert log_interval([3e-6] * 5)[:2] == pytest.approx((3e-6, 3e-6))


@pytest.mark.parametrize("values", [[2.0], [0.0, 1.0, 2.0], [0.0, 0.0]])
def test_what_has_no_interval_of_logarithms_is_its_own_range_and_covers_nothing(values: list[float]) -> None:
    assert log_interval(values) == (min(values), max(values), 0.0)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_true_centre_lies_inside_as_often_as_promised(n: int, confidence: float) -> None:
    generator, repeats = np.random.default_rng(100 + n), 3000
    drawn = generator.lognormal(math.log(5e-6), 0.1, (repeats, n)).tolist()
    intervals = (log_interval(values, confidence) for values in drawn)
    inside = sum(interval.low <= 5e-6 <= interval.high for interval in intervals)
    slack = 4 * math.sqrt(confidence * (1 - confidence) / repeats)
    assert inside / repeats == pytest.approx(confidence, abs=slack)


def test_processes_at_both_ends_of_all_numbers_have_an_interval() -> None:
    found = log_interval([5e-324, 1e308, 1.0])
    assert 0 < found.low < found.high < math.inf
