"""Warm up, sample, stop. The only place that decides how often a launch is called and when its time is taken."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from opmark.measure.collector import no_collector
from opmark.measure.conditions import Watch
from opmark.measure.sampler import Sampler
from opmark.measure.stability import Observed, cautions
from opmark.measure.stopping import Count, Enough, Precision, WarmUp
from opmark.schema import Measurement, Sampling
from opmark.schema.measurement import Stop

_WINDOW = 10
"""Number of samples between two checks whether to stop."""


def measure(sampler: Sampler, rule: Sampling, watch: Watch) -> list[Measurement]:
    """One measurement for each quantity of the sampler. Outputs are dropped as soon as they are made."""
    with no_collector():
        warm = _warm_up(sampler, rule)
        sampler.lost = sampler.stray = 0  # nothing is kept of the warm-up
        watch.begin()
        taken = _sample(sampler, rule, watch)
    conditions = watch.end(len(taken.rows))
    found = []
    for quantity, samples in zip(sampler.quantities, map(list, zip(*taken.rows, strict=True)), strict=True):
        seen = Observed(
            samples, rule, taken.stop, warm.settled, sampler.overhead, taken.seconds, conditions,
            real_clock=not sampler.virtual, lost=sampler.lost, stray=sampler.stray, traces=sampler.traces,
        )  # fmt: skip
        found.append(
            Measurement(
                quantity=quantity,
                cache=sampler.supply.cache,
                timer=sampler.timer,
                samples=samples,
                calls=sampler.calls,
                overhead=sampler.overhead,
                warmup_calls=warm.calls,
                warmup_time=warm.seconds,
                warmup_samples=warm.each,
                stop=taken.stop,
                cautions=cautions(seen),
                control=sampler.supply.control,
                conditions=conditions,
                kernels=sampler.kernels() if quantity == "device_time" else (),
            )
        )
    return found


class _Warm(NamedTuple):
    settled: bool
    calls: int
    seconds: float
    each: tuple[float, ...] = ()


def _warm_up(sampler: Sampler, rule: Sampling) -> _Warm:
    """Warm up until the rule says so. The calls that the sampler made to prepare itself count as the first windows."""
    if rule.warmup is not None:
        start = time.perf_counter()
        told = [sampler.warm(launch) for launch in sampler.supply.some(rule.warmup)]
        warmed = time.perf_counter() - start
        spent, _ = sampler.prepare(rule)
        each = tuple(value for value in told if value is not None)
        return _Warm(True, rule.warmup + spent.calls, warmed + spent.seconds, each)
    until, (spent, shown) = WarmUp(rule), sampler.prepare(rule)
    made, elapsed = spent
    size = _window(sampler, rule, shown)
    done = [until.done([value / sampler.calls], elapsed) for value in shown]
    if size == 1 and done and done[-1]:
        return _Warm(until.settled, made, elapsed)
    while True:
        window = sampler.take(size)
        elapsed, made = elapsed + window.seconds, made + sampler.calls * size
        if until.done([row[0] for row in window.rows], elapsed):
            return _Warm(until.settled, made, elapsed)


def _window(sampler: Sampler, rule: Sampling, shown: Sequence[float]) -> int:
    """Long calls get short windows: ten samples of a second each would be all warm-up."""
    chunk = sampler.chunk(rule)
    if chunk > 1 or not shown or shown[-1] <= 0:
        return max(chunk, _WINDOW) if chunk == 1 else chunk
    return max(1, min(_WINDOW, int(rule.warmup_max / 4 / shown[-1])))


class _Sampled(NamedTuple):
    rows: list[tuple[float, ...]]
    seconds: float
    stop: Stop


def _sample(sampler: Sampler, rule: Sampling, watch: Watch) -> _Sampled:
    """Take samples until the first quantity has enough."""
    until, elapsed, ask_at = _enough(sampler, rule), 0.0, _WINDOW
    rows: list[tuple[float, ...]] = []
    firsts: list[float] = []
    while True:
        count = sampler.chunk(rule) if rule.samples is None else min(sampler.chunk(rule), rule.samples - len(rows))
        taken = sampler.take(count)
        rows += taken.rows
        firsts += (row[0] for row in taken.rows)
        elapsed += taken.seconds
        watch.look(len(rows))
        if len(rows) >= ask_at or elapsed >= rule.max_time or rule.samples is not None:
            if stop := until.reached(firsts, elapsed):
                return _Sampled(rows, elapsed, stop)
            # The question costs a sort: ask it less often as samples grow.
            ask_at = max(len(rows) + _WINDOW, round(1.1 * len(rows)))


def _enough(sampler: Sampler, rule: Sampling) -> Enough:
    """The stopping rule. Where a number of samples is asked for, all calls of one stretch are one sample."""
    if rule.samples is None:
        return Precision(rule)
    return Count(max(1, rule.samples // sampler.calls))
