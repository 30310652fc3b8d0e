"""Confidence intervals: of the median from order statistics (exact for any distribution), and by Student's t."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, median
from typing import NamedTuple

from opmark.stats.summary import exp

# Samples beside the median from which on a correlation is estimated, its largest value, and the least that counts.
_FEWEST_SIDES = 8
_MOST_CARRIED = 0.95
_LEAST_CARRIED = 1e-3


class Interval(NamedTuple):
    low: float
    high: float
    coverage: float
    """Probability that the true median lies inside. Below 0.95 for fewer than 6 samples, or than so many are worth."""


def median_interval(values: Sequence[float], confidence: float = 0.95, inflation: float = 1.0) -> Interval:
    """Return the narrowest symmetric pair of order statistics that covers the median with at least `confidence`.

    Fewer than 6 samples have no such pair; then it is the whole range, with a lower coverage. `inflation` says how
    much autocorrelation inflates the variance of the median (`median_inflation`): 1 for independent samples.
    """
    ordered = sorted(values)
    rank, coverage = _rank(len(ordered), confidence)
    if inflation > 1:
        middle, deviation = (len(ordered) - 1) / 2, math.sqrt(inflation * len(ordered)) / 2
        # The correlation itself is known from so many independent samples only.
        reach = quantile((1 + confidence) / 2, max(1, round(len(ordered) / inflation))) * deviation
        rank = min(rank, max(0, round(middle - reach)))
        if reach > middle:  # even the whole range is too narrow
            coverage = min(coverage, 2 * _NORMAL.cdf(middle / deviation) - 1)
    return Interval(ordered[rank], ordered[-1 - rank], coverage)


def median_inflation(samples: Sequence[float]) -> float:
    """Return by how much autocorrelation inflates the variance of the median; `samples` are in the order taken.

    Neighbours on the same side of the median more often than not are correlated. The share of such neighbours gives the
    correlation of AR(1), which does not depend on outliers, and that gives the correlation at every distance.
    """
    centre = median(samples)
    sides = [(value > centre) - (value < centre) for value in samples]
    counted = sum(map(abs, sides))
    if counted < _FEWEST_SIDES:
        return 1.0
    together = sum(map(operator.mul, sides, sides[1:])) / counted
    # A median that is taken from the samples makes neighbours look less alike than they are.
    together += (1 + max(together, 0.0)) / counted
    carried = math.sin(min(max(together, 0.0), _MOST_CARRIED) * math.pi / 2)
    total, power = 1.0, carried
    while power > _LEAST_CARRIED:
        total += 4 / math.pi * math.asin(power)
        power *= carried
    return total


def relative_half_width(samples: Sequence[float], confidence: float = 0.95) -> float:
    """Return half the width of the interval over the median; infinite if there are too few samples. They are in the
    order taken, because correlated ones are worth less."""
    interval = median_interval(samples, confidence, median_inflation(samples))
    centre = median(samples)
    if interval.coverage < confidence:
        return math.inf
    if interval.high == interval.low:
        return 0.0
    if centre <= 0:
        return math.inf
    return (interval.high - interval.low) / 2 / centre


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean, of which `log_interval` is the interval; values that are not all positive have none,
    then it is their median."""
    if min(values) <= 0:
        return median(values)
    # exp(log(x)) is not always x
    return values[0] if min(values) == max(values) else exp(sum(map(math.log, values)) / len(values))


def log_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the interval of the geometric mean of a few positive values, by Student's t on their logarithms.

    It is meant for medians of processes, which are too few for resampling.
    """
    if min(values) <= 0 or len(values) < 2:
        return Interval(min(values), max(values), 0.0)
    if min(values) == max(values):
        return Interval(values[0], values[0], confidence)
    logs = [math.log(value) for value in values]
    centre = sum(logs) / len(logs)
    deviation = math.sqrt(sum((value - centre) ** 2 for value in logs) / (len(logs) - 1))
    half = quantile((1 + confidence) / 2, len(logs) - 1) * deviation / math.sqrt(len(logs))
    return Interval(exp(centre - half), exp(centre + half), confidence)


@lru_cache(maxsize=4096)
def _rank(n: int, confidence: float) -> tuple[int, float]:
    """Return (r, coverage) for the interval from the r-th smallest to the r-th largest value, counted from 0.

    The number of samples below the median is binomial(n, 1/2); r grows while both tails stay small enough.
    """
    if n >= 1000:  # the exact sum would underflow; the normal approximation is good to a rank
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        return math.floor(n / 2 - z * math.sqrt(n) / 2) - 1, confidence
    rank, probability = 0, 0.5**n
    tail = probability
    while True:
        probability *= (n - rank) / (rank + 1)
        if 1 - 2 * (tail + probability) < confidence or rank + 1 >= (n + 1) // 2:
            return rank, max(0.0, 1 - 2 * tail)
        tail += probability
        rank += 1


# Student's t-distribution. SciPy has it, but importing SciPy takes longer than most commands.

_TINY = 1e-300
_EXACT = 1e-15
_MOST_TERMS = 10_000
_MOST_STEPS = 50
_CLOSE = 1e-7
_NORMAL = NormalDist()


def tail(t: float, freedom: float) -> float:
    """Return the probability of a value above `t`."""
    if t < 0:
        return 1.0 - tail(-t, freedom)
    return 0.0 if math.isinf(t) else 0.5 * _beta_of_half(freedom, t)


@lru_cache(maxsize=65536)
def quantile(probability: float, freedom: float) -> float:
    """Return the value below which a draw lies with `probability`, which is between 0 and 1."""
    if probability == 0.5:
        return 0.0
    return -_upper(probability, freedom) if probability < 0.5 else _upper(1.0 - probability, freedom)


def _upper(p: float, freedom: float) -> float:
    """Return the value above which a draw lies with probability `p`, which is below one half."""
    if freedom == 1:
        return 1.0 / math.tan(math.pi * p)
    if freedom == 2:
        return (1.0 - 2.0 * p) / math.sqrt(2.0 * p * (1.0 - p))
    t, goal = _first_guess(p, freedom), math.log(p)
    for _ in range(_MOST_STEPS):
        above = tail(t, freedom)
        step = (math.log(above) - goal) * above / _density(t, freedom)
        t = max(t + step, t / 2)
        if abs(step) <= _CLOSE * t:  # Newton's next step would be about the square of this one
            break
    return t


def _first_guess(p: float, freedom: float) -> float:
    """Return Hill's expansion around the normal distribution; far out, where it fails, the inverse of the power law."""
    z = _NORMAL.inv_cdf(1.0 - p) if p > _EXACT else math.sqrt(-2 * math.log(p))
    if p >= 0.05 or freedom >= 3 + z * z:
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    far = _log_constant(freedom) + (freedom + 1) / 2 * math.log(freedom) - math.log(freedom) - math.log(p)
    return math.exp(far / freedom)


def _log_constant(freedom: float) -> float:
    """Return the logarithm of the density's constant factor."""
    return math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2


def _density(t: float, freedom: float) -> float:
    return math.exp(_log_constant(freedom) - (freedom + 1) / 2 * math.log1p(t * t / freedom))


def _beta_of_half(freedom: float, t: float) -> float:
    """Return the regularized incomplete beta function of freedom / 2 and 1 / 2, at freedom / (freedom + t^2)."""
    if t * t == 0:
        return 1.0
    a, b = freedom / 2, 0.5
    x, rest = freedom / (freedom + t * t), t * t / (freedom + t * t)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale - a * math.log1p(t * t / freedom) + b * math.log(rest))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1.0 - front * _continued_fraction(b, a, rest) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / _avoid_zero(1.0 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, _MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _avoid_zero(1.0 + term * d)
            c = _avoid_zero(1.0 + term / c)
            total *= c * d
        if abs(c * d - 1.0) < _EXACT:
            break
    return total


def _avoid_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
