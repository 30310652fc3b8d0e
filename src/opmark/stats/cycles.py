"""Convert times into clock cycles, which do not change when the clock does."""

from __future__ import annotations

from opmark.schema.measurement import Measurement
from opmark.stats.summary import median


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
