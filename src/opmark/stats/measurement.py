"""Summarise the measurements of one quantity: median, its interval, noise, and cycles."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from statistics import median

from msgspec import Struct

from opmark.schema import Measurement
from opmark.schema.record import StoredFigure
from opmark.stats.interval import geometric_mean, log_interval, median_inflation, median_interval
from opmark.stats.summary import noise


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
    """The numbers of one measurement, including those that need samples and are not stored."""

    coverage: float
    noise: float
    fastest: float


class Summary(Struct, frozen=True):
    """Times in seconds (or energies in joules); coverage and noise are fractions."""

    median: float
    """Median of the samples; with several processes, the geometric mean of their medians."""
    low: float
    high: float
    """Ends of the interval of the median."""
    coverage: float
    """Probability that the interval contains the median of this process or, with several, the geometric mean over all
    processes that could have been started."""
    noise: float
    samples: int
    fastest: float
    processes: int = 1
    cycles: float | None = None
    """Median of the samples in clock cycles."""


def figure_of(m: Measurement) -> SampledFigure:
    """Return the numbers of a measurement. Without samples, stored ones are None and the others NaN."""
    codes = tuple(dict.fromkeys(caution.code for caution in m.cautions))
    who = (m.quantity, m.cache, m.timer, m.calls)
    # Sorted once: the functions below sort again, which is quick for sorted values.
    ordered = sorted(m.samples) or [nan]
    low, high, coverage = median_interval(ordered, inflation=median_inflation(m.samples or ordered))
    unstored = (coverage, noise(ordered), ordered[0])
    if not m.samples:
        return SampledFigure(*who, 0, None, None, None, None, codes, *unstored)
    return SampledFigure(*who, len(ordered), median(ordered), low, high, cycles(m), codes, *unstored)


def join_figures(figures: Sequence[SampledFigure]) -> Summary:
    """Summarise one process, or several: then the unit is the process, not the sample. Processes without samples do not
    count; if there is no other, the numbers are NaN."""
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
        median=geometric_mean(medians),
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
    """Return the summary of one quantity, measured in one process or in several."""
    return join_figures([figure_of(m) for m in measurements])
