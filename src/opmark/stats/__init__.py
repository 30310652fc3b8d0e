"""Pure statistics over lists of numbers."""

from statistics import median

from opmark.stats.interval import Interval, log_interval, median_interval, relative_half_width
from opmark.stats.summary import noise, outlier_limit, relative_deviation, robust_deviation

__all__ = [
    "Interval",
    "log_interval",
    "median",
    "median_interval",
    "noise",
    "outlier_limit",
    "relative_deviation",
    "relative_half_width",
    "robust_deviation",
]
