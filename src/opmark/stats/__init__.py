"""Pure statistics over lists of numbers."""

from opmark.stats.interval import Interval, log_interval, median_interval, relative_half_width
from opmark.stats.summary import far_off, median, noise, relative_deviation, robust_deviation

__all__ = [
    "Interval",
    "far_off",
    "log_interval",
    "median",
    "median_interval",
    "noise",
    "relative_deviation",
    "relative_half_width",
    "robust_deviation",
]
