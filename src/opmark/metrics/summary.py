"""What the measurements of one quantity say: the median, how sure that is, how noisy it was, in cycles too."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from msgspec import Struct

from opmark.schema import Measurement
from opmark.stats import log_interval, median, median_interval, noise
from opmark.stats.cycles import cycles


class Summary(Struct, frozen=True):
    """Seconds (or joules), and fractions of the median."""

    median: float
    low: float
    high: float
    """Ends of the interval of the median."""
    coverage: float
    """Probability that the interval holds the median: of this process, or, with several, of any."""
    noise: float
    samples: int
    fastest: float
    processes: int = 1
    cycles: float | None = None
    """Median of the samples in cycles of the clock that each was taken at."""


def summarize(measurements: Sequence[Measurement]) -> Summary:
    """Of one process, or of the same in several: then the process is the unit, and not the sample. One without
    samples is none; where there is no other, the numbers are NaN."""
    # Sorted once: what follows sorts again, and finds it done.
    ordered = [sorted(m.samples) for m in measurements if m.samples] or [[nan]]
    medians = [median(values) for values in ordered]
    if len(ordered) > 1:
        centre, interval = median(medians), log_interval(medians)
    else:
        centre, interval = medians[0], median_interval(ordered[0])
    found = [c for c in map(cycles, measurements) if c is not None]
    return Summary(
        median=centre,
        low=interval.low,
        high=interval.high,
        coverage=interval.coverage,
        noise=median([noise(values) for values in ordered]),
        samples=sum(len(m.samples) for m in measurements),
        fastest=min(values[0] for values in ordered),
        processes=len(ordered),
        cycles=median(found) if found else None,
    )
