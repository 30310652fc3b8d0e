"""Finds calls that are too small to measure anything but what a call costs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from opmark.interfaces import Timer
from opmark.schema import Caution, Cost, Launch, Measurement
from opmark.stats import median
from opmark.units import count_bytes, seconds

_ROUNDS = 5
_CALLS = 200
# A call with less data than this, and not much longer than one that does nothing, is dispatch and little else.
_LITTLE = 64 << 10
_FEW_FLOPS = 100_000
_TIMES = 10


def fastest_call(timer: Timer, launch: Launch) -> float:
    """Seconds per call in the fastest of a few rounds."""
    timer.time(launch, _CALLS)
    rounds = (timer.time(launch, _CALLS) - timer.overhead(_CALLS) for _ in range(_ROUNDS))
    return max(0.0, min(rounds) / _CALLS)


def labelled(found: Sequence[Measurement], cost: Cost | None, least: float | None) -> tuple[Measurement, ...]:
    """The measurements, the first with the caution `overhead-bound` where a call that does nothing takes as long.

    `least` is the time of such a call; None where it is not known.
    """
    latency = next((m for m in found if m.quantity == "latency"), None)
    if least is None or cost is None or latency is None or cost.bytes_moved > _LITTLE or (cost.flops or 0) > _FEW_FLOPS:
        return tuple(found)
    if median(latency.samples) > _TIMES * least:
        return tuple(found)
    caution = Caution(
        "overhead-bound",
        f"{count_bytes(cost.bytes_moved)} are moved in {seconds(median(latency.samples))}, and one of the smallest "
        f"calls takes {seconds(least)} here: this is mostly what a call costs, not its work",
        "give it more data",
    )
    return (replace(found[0], cautions=(*found[0].cautions, caution)), *found[1:])
