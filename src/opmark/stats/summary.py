"""Order statistics of one set of samples. Pure, and quick on short lists, where NumPy's start-up would dominate."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median, stdev

__all__ = ["far_off", "median", "noise", "percentile", "relative_deviation", "robust_deviation"]

# Makes the median absolute deviation of a normal sample an estimate of its standard deviation.
_TO_SIGMA = 1.4826
# As many robust standard deviations as hyperfine takes for an outlier, where that is a difference that matters.
_OUTLIER_LIMIT = 14.826
_OUTLIER_MATTERS = 1.2


def robust_deviation(values: Sequence[float]) -> float:
    """An estimate of the standard deviation that a few outliers do not move."""
    centre = median(values)
    return _TO_SIGMA * median([abs(value - centre) for value in values])


def far_off(values: Sequence[float]) -> float:
    """A sample above this is an outlier."""
    centre = median(values)
    return max(_OUTLIER_MATTERS * centre, centre + _OUTLIER_LIMIT * robust_deviation(values))


def relative_deviation(values: Sequence[float]) -> float:
    """Standard deviation over mean, for a few values of which each counts."""
    mean = fmean(values)
    return stdev(values) / mean if len(values) > 1 and mean > 0 else 0.0


def noise(values: Sequence[float]) -> float:
    """Robust relative spread: what the standard deviation over the mean would be without outliers."""
    centre = median(values)
    return robust_deviation(values) / centre if centre > 0 else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated between two neighbours as NumPy does by default."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
