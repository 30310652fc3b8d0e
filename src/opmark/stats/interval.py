"""Confidence intervals: of the median from order statistics (exact for any distribution), and by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from opmark.stats import student
from opmark.stats.factors import exp
from opmark.stats.summary import median


class Interval(NamedTuple):
    low: float
    high: float
    coverage: float
    """Probability that the true median lies inside, if samples are independent. Below 0.95 for fewer than 6 samples."""


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the narrowest symmetric pair of order statistics that covers the median with at least `confidence`.

    Fewer than 6 samples have no such pair; then it is the whole range, with a lower coverage.
    """
    ordered = sorted(values)
    rank, coverage = _rank(len(ordered), confidence)
    return Interval(ordered[rank], ordered[-1 - rank], coverage)


def relative_half_width(values: Sequence[float], confidence: float = 0.95) -> float:
    """Return half the width of the interval over the median; infinite if there are too few samples."""
    interval = median_interval(values, confidence)
    centre = median(values)
    if interval.coverage < confidence:
        return math.inf
    if interval.high == interval.low:
        return 0.0
    if centre <= 0:
        return math.inf
    return (interval.high - interval.low) / 2 / centre


def log_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the interval of the geometric mean of a few positive values, by Student's t on their logarithms.

    It is meant for medians of processes, which are too few for resampling.
    """
    if min(values) <= 0 or len(values) < 2:
        return Interval(min(values), max(values), 0.0)
    if min(values) == max(values):
        return Interval(values[0], values[0], confidence)  # exp(log(x)) is not always x
    logs = [math.log(value) for value in values]
    centre = sum(logs) / len(logs)
    deviation = math.sqrt(sum((value - centre) ** 2 for value in logs) / (len(logs) - 1))
    half = student.quantile((1 + confidence) / 2, len(logs) - 1) * deviation / math.sqrt(len(logs))
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
