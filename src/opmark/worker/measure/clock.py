"""Timers by the host's monotonic clock, one for each quantity, whose own cost is known and subtracted."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import repeat
from statistics import median

from msgspec.structs import replace

from opmark.plugin import Launch, Timer
from opmark.schema import Caution, Cost, Measurement
from opmark.units import count_bytes, seconds

_REPEATS = 50
_MANY = 1000

Synchronize = Callable[[], object]


def host_timers(synchronize: Synchronize | None) -> dict[str, Timer]:
    """The host's timers by quantity. `synchronize` waits for a device that returns before it is done."""
    if synchronize is None:
        return {"latency": WallClock(_time_plain), "throughput": WallClock(_time_plain)}
    return {
        "latency": WallClock(partial(_time_waiting, synchronize)),
        "host_time": WallClock(partial(_time_caller, synchronize)),
        "throughput": WallClock(partial(_time_stream, synchronize)),
    }


class WallClock:
    name = "monotonic"

    def __init__(self, loop: Callable[[Launch, int], float]) -> None:
        self.time = loop
        self.resolution = _resolution()
        self._per_sample, self._per_call = _own_cost()

    def overhead(self, calls: int) -> float:
        return self._per_sample + calls * self._per_call


def _time_plain(launch: Launch, calls: int) -> float:
    """Time calls that are done when they return."""
    loop = repeat(None, calls)
    start = time.perf_counter_ns()
    for _ in loop:
        launch()
    return (time.perf_counter_ns() - start) * 1e-9


def _time_waiting(synchronize: Synchronize, launch: Launch, calls: int) -> float:
    """Time calls and the wait for each of them."""
    synchronize()
    loop = repeat(None, calls)
    start = time.perf_counter_ns()
    for _ in loop:
        launch()
        synchronize()
    return (time.perf_counter_ns() - start) * 1e-9


def _time_caller(synchronize: Synchronize, launch: Launch, calls: int) -> float:
    """Time calls until they return; the device is idle when each begins."""
    spent = 0
    for _ in repeat(None, calls):
        synchronize()
        start = time.perf_counter_ns()
        launch()
        spent += time.perf_counter_ns() - start
    synchronize()
    return spent * 1e-9


def _time_stream(synchronize: Synchronize, launch: Launch, calls: int) -> float:
    """Time all calls and one wait at the end."""
    synchronize()
    loop = repeat(None, calls)
    start = time.perf_counter_ns()
    for _ in loop:
        launch()
    synchronize()
    return (time.perf_counter_ns() - start) * 1e-9


@cache
def _own_cost() -> tuple[float, float]:
    """(seconds per sample, seconds per call) of the loop itself, from the cheapest launch there is.

    The smallest of many, so that a disturbance here never makes every later number too small. Waiting for a
    device is part of what is measured and stays in.
    """
    empty = partial(operator.truth, None)
    one = min(_time_plain(empty, 1) for _ in range(_REPEATS))
    many = min(_time_plain(empty, _MANY) for _ in range(_REPEATS))
    per_call = max(0.0, (many - one) / (_MANY - 1))
    return max(0.0, one - per_call), per_call


@cache
def _resolution() -> float:
    """The smallest step of the clock that two successive readings show."""
    steps = []
    for _ in range(_REPEATS):
        start = now = time.perf_counter_ns()
        while now == start:
            now = time.perf_counter_ns()
        steps.append(now - start)
    return min(steps) * 1e-9


# Calls that are too small to measure anything but the cost of a call.

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


def mark_small_calls(found: Sequence[Measurement], cost: Cost | None, least: float | None) -> tuple[Measurement, ...]:
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
