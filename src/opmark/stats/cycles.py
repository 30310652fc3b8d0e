"""A time in cycles of the clock that it was measured at: what a clock that moved cannot change."""

from __future__ import annotations

from opmark.schema.measurement import Measurement
from opmark.stats.summary import median


def cycles(measurement: Measurement) -> float | None:
    """None where nobody told the clock. A sample's clock is the mean of the readings before and after it."""
    conditions = measurement.conditions
    if not conditions.clocks:
        return None
    counted = []
    for i, sample in enumerate(measurement.samples):
        clocks = [reading.clock for reading in conditions.at(i) if reading.clock]
        if clocks:
            counted.append(sample * sum(clocks) / len(clocks))
    return median(counted) if counted else None
