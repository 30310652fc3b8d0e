"""How far from what the chip can do at most."""

from __future__ import annotations

from msgspec import Struct

from opmark.schema import Cost
from opmark.schema.peaks import Peaks


class Attained(Struct, frozen=True):
    share: float
    """Time that the chip would need at least, over the time that it took."""
    bound: str
    """What that least time is for: the name of a level, or `compute`."""


def attained(cost: Cost | None, seconds: float, dtype: str, peaks: Peaks, *, cold: bool) -> Attained | None:
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
    return Attained(least / seconds, "compute" if computing > moving else told.name) if least > 0 else None


def _computes(cost: Cost) -> bool:
    """Whether without a peak for its element type nothing can be said: more than a few operations a byte."""
    return (cost.flops or 0) > 2 * cost.bytes_moved
