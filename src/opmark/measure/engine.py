"""Warm up, sample, stop. The only place where the time of a launch is taken."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from opmark.interfaces import Timer
from opmark.measure.stability import Machine, Observed, cautions
from opmark.measure.stopping import Precision, WarmUp
from opmark.schema import Launch, Measurement, Sampling
from opmark.schema.measurement import Stop

# A sample has to last this many steps of the clock, so that reading it is off by at most 0.1 %.
_CLOCK_STEPS = 1000
_MAX_CALLS = 1_000_000
_WINDOW = 10
"""Samples between two questions whether to stop."""


def measure(launch: Launch, timer: Timer, rule: Sampling) -> Measurement:
    """Samples of one launch, warm: the same inputs every time. Outputs are dropped as soon as they are made."""
    with _no_collector():
        batch = _batch(launch, timer, rule)
        warm = _warm_up(launch, timer, rule, batch)
        before = Machine.now()
        overhead = timer.overhead(batch.calls) / batch.calls
        samples, elapsed, stop = _sample(launch, timer, rule, batch.calls, overhead)
    after = Machine.now()
    seen = Observed(samples, rule, stop, warm.settled, overhead, elapsed, before, after, timer.name != "virtual")
    return Measurement(
        quantity=timer.quantity,
        cache="warm",
        timer=timer.name,
        samples=samples,
        calls=batch.calls,
        overhead=overhead,
        warmup_calls=warm.calls,
        warmup_time=warm.time,
        stop=stop,
        cautions=cautions(seen),
    )


@contextmanager
def _no_collector() -> Iterator[None]:
    """Python's cyclic collector would run inside a sample now and then."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Warm(NamedTuple):
    settled: bool
    calls: int
    time: float


class _Batch(NamedTuple):
    """How many calls make a sample, what the last two such samples took, and what finding out has cost."""

    calls: int
    samples: tuple[float, float]
    spent: _Warm


def _batch(launch: Launch, timer: Timer, rule: Sampling) -> _Batch:
    """A batch is long enough if it is so twice: a first call may be slow for reasons of its own."""
    target = max(rule.sample_time, _CLOCK_STEPS * timer.resolution)
    calls, spent, made = 1, 0.0, 0
    while True:
        elapsed = first = timer.time(launch, calls)
        spent, made = spent + elapsed, made + calls
        if first >= target or calls >= _MAX_CALLS:
            elapsed = timer.time(launch, calls)
            spent, made = spent + elapsed, made + calls
            if elapsed >= target / 2 or calls >= _MAX_CALLS:
                return _Batch(calls, (first, elapsed), _Warm(False, made, spent))
        # Aim a little beyond the target, and never grow more than tenfold on the word of a cold call.
        wanted = 1.1 * target / max(elapsed, timer.resolution) * calls
        calls = min(_MAX_CALLS, max(calls + 1, min(10 * calls, round(wanted))))


def _warm_up(launch: Launch, timer: Timer, rule: Sampling, batch: _Batch) -> _Warm:
    """The samples that settled the batch are the first windows; finding the batch was warm-up too."""
    until, calls, (_, made, elapsed) = WarmUp(rule), batch.calls, batch.spent
    first, second = batch.samples
    # Long calls get short windows: ten samples of a second each would be all warm-up.
    size = max(1, min(_WINDOW, int(rule.warmup_max / 4 / max(second, timer.resolution))))
    until.done([first], elapsed - second)
    if until.done([second], elapsed) and size == 1:
        return _Warm(until.settled, made, elapsed)
    while True:
        window = [timer.time(launch, calls) for _ in range(size)]
        elapsed, made = elapsed + max(sum(window), timer.resolution), made + calls * size
        if until.done(window, elapsed):
            return _Warm(until.settled, made, elapsed)


def _sample(
    launch: Launch, timer: Timer, rule: Sampling, calls: int, overhead: float
) -> tuple[list[float], float, Stop]:
    until, elapsed, ask_at = Precision(rule), 0.0, _WINDOW
    samples: list[float] = []
    while True:
        took = timer.time(launch, calls)
        elapsed += max(took, timer.resolution)  # a clock that stands still must not mean sampling without end
        samples.append(max(0.0, took / calls - overhead))
        if len(samples) >= ask_at or elapsed >= rule.max_time:
            if stop := until.reached(samples, elapsed):
                return samples, elapsed, stop
            # The question costs a sort: ask it less often as samples grow.
            ask_at = max(len(samples) + _WINDOW, round(1.1 * len(samples)))
