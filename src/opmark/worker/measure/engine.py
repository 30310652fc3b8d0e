"""Warm up, sample, stop. The only place that decides how often a launch is called and when its time is taken."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, Protocol

from opmark.schema import Measurement, Sampling
from opmark.schema.codec import gc_disabled
from opmark.schema.measurement import Stop
from opmark.stats import relative_half_width
from opmark.worker.measure.conditions import ConditionsMonitor
from opmark.worker.measure.sampler import Sampler
from opmark.worker.measure.stability import Observed, cautions

_WINDOW = 10
"""Number of samples between two checks whether to stop."""


def measure(sampler: Sampler, rule: Sampling, watch: ConditionsMonitor) -> list[Measurement]:
    """One measurement for each quantity of the sampler. Outputs are dropped as soon as they are made."""
    with gc_disabled():
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


def _sample(sampler: Sampler, rule: Sampling, watch: ConditionsMonitor) -> _Sampled:
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


def _enough(sampler: Sampler, rule: Sampling) -> StoppingRule:
    """The stopping rule. Where a number of samples is asked for, all calls of one stretch are one sample."""
    if rule.samples is None:
        return Precision(rule)
    return FixedCount(max(1, rule.samples // sampler.calls))


# Stopping rules, as objects that can be asked with invented numbers.

# One sample says nothing about noise. A budget is overdrawn for three, unless the calls are very long.
_MIN_SAMPLES = 3
_OVERDRAFT = 10


class WarmUp:
    """Ends the warm-up when the medians of two successive windows agree, not after a fixed count."""

    def __init__(self, rule: Sampling) -> None:
        self._rule = rule
        self._before: float | None = None
        self.settled = False

    def done(self, window: Sequence[float], elapsed: float) -> bool:
        """Whether warming up is over, after a window of samples and so many seconds in all."""
        now = median(window)
        if self._before is not None:
            self.settled = abs(now - self._before) <= self._rule.warmup_agreement * self._before
        self._before = now
        return (self.settled and elapsed >= self._rule.warmup_min) or elapsed >= self._rule.warmup_max


class StoppingRule(Protocol):
    def reached(self, samples: Sequence[float], elapsed: float) -> Stop | None:
        """Why to stop now, or None to go on."""


class Precision:
    """Stops when the interval of the median is narrow, or when the budget is spent."""

    def __init__(self, rule: Sampling) -> None:
        self._rule = rule

    def reached(self, samples: Sequence[float], elapsed: float) -> Stop | None:
        rule = self._rule
        if elapsed >= rule.max_time and (len(samples) >= _MIN_SAMPLES or elapsed >= _OVERDRAFT * rule.max_time):
            return "budget"
        if len(samples) < rule.min_samples or elapsed < rule.min_time:
            return None
        return "precise" if relative_half_width(samples) <= rule.rel_ci else None


class FixedCount:
    """Stops when there are as many samples as asked for, however long that takes."""

    def __init__(self, count: int) -> None:
        self._count = count

    def reached(self, samples: Sequence[float], elapsed: float) -> Stop | None:
        return "count" if len(samples) >= self._count else None
