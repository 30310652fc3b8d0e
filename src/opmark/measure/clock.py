"""The host's monotonic clock, with the harness's own cost measured once and known by number of calls."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from functools import partial
from itertools import repeat

from opmark.schema import Launch

_REPEATS = 50
_MANY = 1000


class WallClock:
    """`latency`: from the call until the work is done."""

    name = "monotonic"
    quantity = "latency"

    def __init__(self, synchronize: Callable[[], object] | None = None) -> None:
        """With `synchronize`, every call is waited for: for devices that return before they are done."""
        self._synchronize = synchronize
        self.resolution = _resolution()
        self._per_sample, self._per_call = _own_cost()

    def time(self, launch: Launch, calls: int) -> float:
        if self._synchronize:
            return _time_waiting(launch, calls, self._synchronize)
        return _time_plain(launch, calls)

    def overhead(self, calls: int) -> float:
        return self._per_sample + calls * self._per_call


def _time_plain(launch: Launch, calls: int) -> float:
    loop = repeat(None, calls)
    start = time.perf_counter_ns()
    for _ in loop:
        launch()
    return (time.perf_counter_ns() - start) * 1e-9


def _time_waiting(launch: Launch, calls: int, synchronize: Callable[[], object]) -> float:
    synchronize()
    loop = repeat(None, calls)
    start = time.perf_counter_ns()
    for _ in loop:
        launch()
        synchronize()
    return (time.perf_counter_ns() - start) * 1e-9


def _own_cost() -> tuple[float, float]:
    """(seconds a sample, seconds a call) of the loop itself, from the cheapest launch there is.

    The smallest of many, so that a disturbance here never makes every later number too small. Waiting for a
    device is part of `latency` and stays in.
    """
    empty = partial(operator.truth, None)
    one = min(_time_plain(empty, 1) for _ in range(_REPEATS))
    many = min(_time_plain(empty, _MANY) for _ in range(_REPEATS))
    per_call = max(0.0, (many - one) / (_MANY - 1))
    return max(0.0, one - per_call), per_call


def _resolution() -> float:
    """The smallest step of the clock that two successive readings show."""
    steps = []
    for _ in range(_REPEATS):
        start = now = time.perf_counter_ns()
        while now == start:
            now = time.perf_counter_ns()
        steps.append(now - start)
    return min(steps) * 1e-9
