"""Checks a measurement by another timer: two that agree are hardly both wrong."""

from __future__ import annotations

from msgspec.structs import replace

from opmark.measure.sampler import EventSampler
from opmark.schema import EFFORTS, Caution, CrossCheck, Measurement
from opmark.stats import median
from opmark.units import percent, seconds

AGREE = 0.05
# What an event and the start of a kernel behind it cost the device, which no subtraction takes off exactly.
FLOOR = 3e-6
_SAMPLES = 20


def checked(measurement: Measurement, second: EventSampler) -> Measurement:
    """The measurement with what the second timer said, and a caution where they differ."""
    second.prepare(EFFORTS["quick"])
    count = min(_SAMPLES, second.chunk(EFFORTS["quick"]))
    other = median([row[0] for row in second.take(count).rows])
    own = median(measurement.samples)
    found = replace(measurement, check=CrossCheck(second.timer, other))
    if abs(other - own) <= max(AGREE * own, FLOOR):
        return found
    caution = Caution(
        "timers-disagree",
        f"{measurement.timer} says {seconds(own)}, {second.timer} say {seconds(other)}; up to {percent(AGREE)} or "
        f"{seconds(FLOOR)} is usual",
        "the call may wait for the device, use another stream, or be launched too slowly to fill the queue: "
        "device_time does not depend on it",
    )
    return replace(found, cautions=(*measurement.cautions, caution))
