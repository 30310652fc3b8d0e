"""Pure statistics over lists of numbers."""

from opmark.stats.interval import Interval, median_interval, relative_half_width
from opmark.stats.summary import median, noise, robust_deviation

__all__ = ["Interval", "median", "median_interval", "noise", "relative_half_width", "robust_deviation"]
