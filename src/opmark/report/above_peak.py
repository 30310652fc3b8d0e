"""More than a chip was measured to do: then the peak is not one."""

from __future__ import annotations

from opmark.metrics.doubts import IS_ABOVE_PEAK
from opmark.metrics.roofline import Attained
from opmark.schema import Caution
from opmark.schema.item import Share
from opmark.units import percent


def above_peak(part: Attained | Share) -> Caution:
    """Of a share of the measured peak."""
    return Caution(
        IS_ABOVE_PEAK,
        f"{percent(part.share)} of the measured peak ({part.bound}); at most 100 % is possible",
        "`opmark calibrate` again, on a quiet machine",
    )
