"""How far from what the chip can do at most."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from opmark.schema import Cost
from opmark.schema.machine import Peaks


class PeakShare(Struct, frozen=True):
    share: float
    """Time that the chip would need at least, over the time that it took."""
    bound: str
    """What that least time is for: the name of a level, or `compute`."""


def peak_share(cost: Cost | None, seconds: float, dtype: str, peaks: Peaks, *, cold: bool) -> PeakShare | None:
    """None where the cost or the peak that it needs is not known: half a roofline would flatter."""
    if cost is None or cost.flops is None or seconds <= 0:
        return None
    peak = peaks.flops.get(dtype)
    level = peaks.level_for(cost.bytes_moved, cold=cold)
    told = level if level and level.bandwidth else peaks.level_for(cost.bytes_moved, cold=True)
    if told is None or not told.bandwidth or (peak is None and _computes(cost)):
        return None
    moving = cost.bytes_moved / told.bandwidth
    computing = (cost.flops or 0) / peak if peak else 0.0
    if told is not level and moving > computing:
        return None  # in a cache that is faster than the memory, nobody tells by how much
    least = max(moving, computing)
    return PeakShare(least / seconds, "compute" if computing > moving else told.name) if least > 0 else None


def _computes(cost: Cost) -> bool:
    """Whether without a peak for its element type nothing can be said: more than a few operations a byte."""
    return (cost.flops or 0) > 2 * cost.bytes_moved


# Cautions that no measurement has by itself: processes that differ, and more than the hardware can do.

APART = 0.10
"""Half the width of the interval over processes, relative to their centre, beyond which they are said to differ."""
ABOVE_PEAK = 1.05
"""Share of a peak beyond which the peak, the cost or the clock is wrong. A little more than 1, since a measured peak is
a measurement, too."""

PROCESSES_DIFFER = "processes-differ"
IS_ABOVE_PEAK = "above-peak"
_OF_ONE_PROCESS = "imprecise"
"""How sure one process is of its own median says nothing once there are several."""


def is_above(share: float) -> bool:
    """Whether a share of a peak is more than is possible."""
    return share > ABOVE_PEAK


def half_width(median: float, low: float, high: float) -> float:
    """Half the width of an interval relative to its centre; 0 where the centre is not above 0."""
    return (high - low) / 2 / median if median > 0 else 0.0


def holds_over_processes(code: str) -> bool:
    """Whether a caution of one process is also one of several together."""
    return code != _OF_ONE_PROCESS


def codes_over_processes(codes: Iterable[str], measured: int, half: float) -> list[str]:
    """The codes of several processes together. `measured`: how many of them have a number; `half`: as `half_width`."""
    apart = [PROCESSES_DIFFER] if measured > 1 and half > APART else []
    return [*apart, *filter(holds_over_processes, codes)]


# Work over time: bytes a second, floating-point operations a second.


class Rates(Struct, frozen=True):
    """None where the work is unknown or there is none of that kind: never a made-up zero."""

    bytes_per_second: float | None = None
    flops_per_second: float | None = None


def rates(cost: Cost | None, seconds: float) -> Rates:
    if cost is None or seconds <= 0:
        return Rates()
    return Rates(
        cost.bytes_moved / seconds if cost.bytes_moved else None,
        cost.flops / seconds if cost.flops else None,
    )
