"""Order statistics of one set of samples. Pure, and quick on short lists, where NumPy's start-up would dominate."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

__all__ = ["median", "noise", "robust_deviation"]

# Makes the median absolute deviation of a normal sample an estimate of its standard deviation.
_TO_SIGMA = 1.4826


def robust_deviation(values: Sequence[float]) -> float:
    """An estimate of the standard deviation that a few outliers do not move."""
    centre = median(values)
    return _TO_SIGMA * median([abs(value - centre) for value in values])


def noise(values: Sequence[float]) -> float:
    """Robust relative spread: what the standard deviation over the mean would be without outliers."""
    centre = median(values)
    return robust_deviation(values) / centre if centre > 0 else 0.0
