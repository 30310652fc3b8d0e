"""What one measurement says: the median, how sure that is, how noisy it was."""

from __future__ import annotations

from msgspec import Struct

from opmark.schema import Measurement
from opmark.stats import median, median_interval, noise


class Summary(Struct, frozen=True):
    """Seconds, and fractions of the median."""

    median: float
    low: float
    high: float
    """Ends of the interval of the median."""
    coverage: float
    """Probability that the interval holds the median of this run."""
    noise: float
    samples: int


def summarize(measurement: Measurement) -> Summary:
    samples = measurement.samples
    interval = median_interval(samples)
    return Summary(
        median=median(samples),
        low=interval.low,
        high=interval.high,
        coverage=interval.coverage,
        noise=noise(samples),
        samples=len(samples),
    )
