"""Pure statistics over lists of numbers."""

from statistics import median

from opmark.stats.interval import (
    Interval,
    geometric_mean,
    log_interval,
    median_inflation,
    median_interval,
    relative_half_width,
)
from opmark.stats.summary import noise, outlier_limit, relative_deviation, robust_deviation

__all__ = [
    "Interval",
    "geometric_mean",
    "log_interval",
    "median",
    "median_inflation",
    "median_interval",
    "noise",
    "outlier_limit",
    "relative_deviation",
    "relative_half_width",
    "robust_deviation",
]
