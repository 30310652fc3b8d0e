"""Metrics of a row: rates, shares of the chip's peaks, and cautions that follow from several processes or peaks."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from opmark.schema import Cost
from opmark.schema.machine import Peaks


class PeakShare(Struct, frozen=True):
    share: float
    """Least time that the chip would need, divided by the measured time."""
    bound: str
    """What limits the least time: the name of a memory level, or `compute`."""


def peak_share(cost: Cost | None, seconds: float, dtype: str, peaks: Peaks, *, cold: bool) -> PeakShare | None:
    """Return the share of the roofline; None if the cost or a peak is unknown, because half a roofline would
    flatter."""
    if cost is None or cost.flops is None or seconds <= 0:
        return None
    peak = peaks.flops.get(dtype)
    if peak is None and _computes(cost):
        return None
    computing = cost.flops / peak if peak else 0.0
    moving = peaks.moving_time(cost.bytes_moved, cold=cold)
    if moving is None:  # the bandwidth of a cache is unknown, only that it exceeds that of the memory
        slowest = peaks.moving_time(cost.bytes_moved, cold=True)
        return PeakShare(computing / seconds, "compute") if slowest and computing >= slowest.seconds > 0 else None
    least = max(moving.seconds, computing)
    return PeakShare(least / seconds, "compute" if computing > moving.seconds else moving.level) if least > 0 else None


def _computes(cost: Cost) -> bool:
    """Return whether the peak FLOP/s matters: the operator does more than two operations per byte."""
    return (cost.flops or 0) > 2 * cost.bytes_moved


APART = 0.10
"""Relative half-width of the interval over processes beyond which they are said to differ."""
ABOVE_PEAK = 1.05
"""Share of a peak beyond which the peak, the cost or the clock is wrong. It is above 1, because a measured peak has an
error too."""

PROCESSES_DIFFER = "processes-differ"
IS_ABOVE_PEAK = "above-peak"
IS_ABOVE_DATASHEET = "above-datasheet"
_OF_ONE_PROCESS = "imprecise"
"""Caution about the interval of one process, which does not matter if there are several."""


def is_above(share: float) -> bool:
    """Return whether a share of a peak is impossible."""
    return share > ABOVE_PEAK


def half_width(median: float, low: float, high: float) -> float:
    """Return half the width of an interval relative to its median; 0 if the median is not above 0."""
    return (high - low) / 2 / median if median > 0 else 0.0


def holds_over_processes(code: str) -> bool:
    """Return whether a caution of one process also holds for several processes together."""
    return code != _OF_ONE_PROCESS


def codes_over_processes(codes: Iterable[str], measured: int, half: float) -> list[str]:
    """Return the caution codes of several processes. `measured` is the number of processes with a median, `half` the
    relative half-width over them."""
    apart = [PROCESSES_DIFFER] if measured > 1 and half > APART else []
    return [*apart, *filter(holds_over_processes, codes)]


class Rates(Struct, frozen=True):
    """Work per time; None if the work is unknown or there is none of that kind."""

    bytes_per_second: float | None = None
    flops_per_second: float | None = None


def rates(cost: Cost | None, seconds: float) -> Rates:
    if cost is None or seconds <= 0:
        return Rates()
    return Rates(
        cost.bytes_moved / seconds if cost.bytes_moved else None,
        cost.flops / seconds if cost.flops else None,
    )
