"""What the measurements of one quantity say: the median, how sure that is, how noisy it was, in cycles too."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from statistics import median

from msgspec import Struct

from opmark.schema import Measurement
from opmark.schema.record import StoredFigure
from opmark.stats.interval import log_interval, median_interval
from opmark.stats.summary import noise

# Convert times into clock cycles, which do not change when the clock does.


def cycles(measurement: Measurement) -> float | None:
    """Return the median in cycles, or None if the clock is unknown.

    The clock of a sample is the mean of the readings before and after it.
    """
    conditions = measurement.conditions
    if not conditions.clocks:
        return None
    counted = []
    for i, sample in enumerate(measurement.samples):
        clocks = [reading.clock for reading in conditions.at(i) if reading.clock]
        if clocks:
            counted.append(sample * sum(clocks) / len(clocks))
    return median(counted) if counted else None


class SampledFigure(StoredFigure, frozen=True, array_like=True):
    """The numbers of one measurement with those that are not stored, because they take the samples."""

    coverage: float
    noise: float
    fastest: float


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


def figure_of(m: Measurement) -> SampledFigure:
    """The numbers of a measurement. Without samples they are NaN, and those that are stored None."""
    codes = tuple(dict.fromkeys(caution.code for caution in m.cautions))
    who = (m.quantity, m.cache, m.timer, m.calls)
    # Sorted once: what follows sorts again, and finds it done.
    ordered = sorted(m.samples) or [nan]
    low, high, coverage = median_interval(ordered)
    told = (coverage, noise(ordered), ordered[0])
    if not m.samples:
        return SampledFigure(*who, 0, None, None, None, None, codes, *told)
    return SampledFigure(*who, len(ordered), median(ordered), low, high, cycles(m), codes, *told)


def join_figures(figures: Sequence[SampledFigure]) -> Summary:
    """One process, or the same in several: then the process is the unit, and not the sample. A process without samples
    does not count; where there is no other, the numbers are NaN."""
    counted = [one for one in figures if one.samples]
    known = counted or figures[:1]
    medians = [nan if one.median is None else one.median for one in known]
    if len(known) > 1:
        low, high, coverage = log_interval(medians)
    else:
        ends = (nan if end is None else end for end in (known[0].low, known[0].high))
        low, high, coverage = *ends, known[0].coverage
    in_cycles = [one.cycles for one in counted if one.cycles is not None]
    return Summary(
        median=median(medians),
        low=low,
        high=high,
        coverage=coverage,
        noise=median([one.noise for one in known]),
        samples=sum(one.samples for one in counted),
        fastest=min(one.fastest for one in known),
        processes=len(known),
        cycles=median(in_cycles) if in_cycles else None,
    )


def summarize(measurements: Sequence[Measurement]) -> Summary:
    """The summary of one quantity, measured in one process or in several."""
    return join_figures([figure_of(m) for m in measurements])
