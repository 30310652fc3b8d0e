"""Measures energy per call in a loop from one step of the counter to another, so that coarse steps do not matter."""

from __future__ import annotations

import time
from collections.abc import Callable

from opmark.errors import Unsupported
from opmark.measure.conditions import Watch
from opmark.measure.sampler import fit_batch
from opmark.schema import Launch, Measurement

_WINDOWS = 3
_WINDOW = 0.5
_BETWEEN_LOOKS = 2e-3
_STUCK = 5.0
"""Seconds after which a counter that stands still is no counter."""


def measure_energy(launch: Launch, synchronize: Callable[[], object], watch: Watch) -> Measurement:
    """Joules per call in three windows of at least half a second, with caches as the loop leaves them."""
    batch, _, spent = fit_batch(lambda calls: _stretch(launch, synchronize, calls), _BETWEEN_LOOKS, 1e-7)
    watch.begin()
    loop = _Loop(launch, synchronize, watch, batch)
    joules, _ = loop.until_step(0.0)  # from here on, at a step
    samples = []
    for _ in range(_WINDOWS):
        end, calls = loop.until_step(_WINDOW)
        if end > joules:  # a counter that began again at zero says nothing of this window
            samples.append((end - joules) / calls)
        joules = end
    if not samples:
        raise Unsupported("the energy counter goes backwards")
    return Measurement(
        quantity="energy",
        cache="warm",
        timer="energy counter",
        samples=samples,
        calls=batch,
        overhead=0.0,
        warmup_calls=spent.calls,
        warmup_time=spent.seconds,
        stop="count",
        conditions=watch.end(len(samples)),
    )


class _Loop:
    def __init__(self, launch: Launch, synchronize: Callable[[], object], watch: Watch, batch: int) -> None:
        self._work = launch, synchronize, batch
        self._watch = watch

    def until_step(self, at_least: float) -> tuple[float, int]:
        """Call until that much time has passed and the counter makes its next step: (what it says, calls)."""
        launch, synchronize, batch = self._work
        start, calls, before = time.perf_counter(), 0, self._joules()
        while True:
            _stretch(launch, synchronize, batch)
            calls += batch
            now, elapsed = self._joules(), time.perf_counter() - start
            if now != before and elapsed >= at_least:
                return now, calls
            if elapsed > at_least + _STUCK:
                raise Unsupported(f"the energy counter did not change for {_STUCK:g} s")
            before = now if elapsed < at_least else before

    def _joules(self) -> float:
        found = self._watch.energy()
        if found is None:
            raise Unsupported("the energy counter stopped answering")
        return found


def _stretch(launch: Launch, synchronize: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        launch()
    synchronize()
    return time.perf_counter() - start
