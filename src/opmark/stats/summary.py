"""Order statistics of one set of samples, without NumPy, whose import would dominate on short lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

# Makes the median absolute deviation of a normal sample an estimate of its standard deviation.
_TO_SIGMA = 1.4826
# An outlier is this many robust standard deviations above the median (hyperfine's limit) and this much larger than it.
_OUTLIER_LIMIT = 14.826
_OUTLIER_MATTERS = 1.2


def robust_deviation(values: Sequence[float]) -> float:
    """Estimate the standard deviation in a way that a few outliers do not affect."""
    centre = median(values)
    return _TO_SIGMA * median([abs(value - centre) for value in values])


def outlier_limit(values: Sequence[float]) -> float:
    """Return the limit above which a sample is an outlier."""
    centre = median(values)
    return max(_OUTLIER_MATTERS * centre, centre + _OUTLIER_LIMIT * robust_deviation(values))


def relative_deviation(values: Sequence[float]) -> float:
    """Return standard deviation over mean, for a few values without outliers."""
    mean = fmean(values)
    return stdev(values) / mean if len(values) > 1 and mean > 0 else 0.0


def noise(values: Sequence[float]) -> float:
    """Return the robust relative spread: what standard deviation over mean would be without outliers."""
    centre = median(values)
    return robust_deviation(values) / centre if centre > 0 else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated between two neighbours as NumPy does by default."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


# Compute factors from their logarithms.

_MOST = 700.0
"""exp(710) overflows."""


def exp(logarithm: float) -> float:
    """Return e**logarithm, limited to a finite positive number."""
    return math.exp(min(max(logarithm, -_MOST), _MOST))
