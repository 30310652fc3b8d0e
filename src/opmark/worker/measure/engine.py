"""Warms up, samples and stops. Only this file decides how often a launch is called and when its time is taken."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, Protocol

from opmark.schema import Measurement, Sampling
from opmark.schema.codec import gc_disabled
from opmark.schema.measurement import Stop
from opmark.stats import relative_half_width
from opmark.worker.measure.instruments import ConditionsMonitor
from opmark.worker.measure.sampler import Sampler
from opmark.worker.measure.stability import Observed, cautions

_WINDOW = 10
"""Number of samples between two checks whether to stop."""


def measure(sampler: Sampler, rule: Sampling, watch: ConditionsMonitor, *, settled: bool = False) -> list[Measurement]:
    """One measurement for each quantity of the sampler. Outputs are dropped as soon as they are made. `settled`: the
    launch has been warmed up and sampled before, so that the sampler's own trials are warm-up enough."""
    with gc_disabled():
        warm = _warm_up(sampler, rule, settled=settled)
        sampler.lost = sampler.stray = 0  # nothing is kept of the warm-up
        watch.begin()
        taken = _sample(sampler, rule, watch)
    conditions = watch.end(len(taken.rows))
    found = []
    for quantity, samples in zip(sampler.quantities, map(list, zip(*taken.rows, strict=True)), strict=True):
        observed = Observed(
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
                warmup_samples=warm.single,
                stop=taken.stop,
                cautions=cautions(observed),
                control=sampler.supply.control,
                conditions=conditions,
                kernels=sampler.kernels() if quantity == "device_time" else (),
            )
        )
    return found


class _WarmUpResult(NamedTuple):
    settled: bool
    calls: int
    seconds: float
    single: tuple[float, ...] = ()


def _warm_up(sampler: Sampler, rule: Sampling, *, settled: bool) -> _WarmUpResult:
    """Warm up until the rule says so. The calls that the sampler made to prepare itself count as the first windows."""
    if rule.warmup is not None:
        start = time.perf_counter()
        times = [sampler.warm(launch) for launch in sampler.supply.some(rule.warmup)]
        warmed = time.perf_counter() - start
        spent, _ = sampler.prepare(rule)
        single = tuple(value for value in times if value is not None)
        return _WarmUpResult(True, rule.warmup + spent.calls, warmed + spent.seconds, single)
    until, (spent, trials) = WarmUp(rule), sampler.prepare(rule)
    made, elapsed = spent
    if settled:
        return _WarmUpResult(True, made, elapsed)
    size = _window_size(sampler, rule, trials)
    done = [until.done([value / sampler.calls], elapsed) for value in trials]
    if size == 1 and done and done[-1]:
        return _WarmUpResult(until.settled, made, elapsed)
    while True:
        window = sampler.take(size)
        elapsed, made = elapsed + window.seconds, made + sampler.calls * size
        if until.done([row[0] for row in window.rows], elapsed):
            return _WarmUpResult(until.settled, made, elapsed)


def _window_size(sampler: Sampler, rule: Sampling, trials: Sequence[float]) -> int:
    """Long calls get short windows: ten samples of a second each would be all warm-up."""
    chunk = sampler.chunk(rule)
    if chunk > 1 or not trials or trials[-1] <= 0:
        return min(chunk, _WINDOW) if chunk > 1 else _WINDOW
    return max(1, min(_WINDOW, int(rule.warmup_max / 4 / trials[-1])))


class _SamplingResult(NamedTuple):
    rows: list[tuple[float, ...]]
    seconds: float
    stop: Stop


def _sample(sampler: Sampler, rule: Sampling, watch: ConditionsMonitor) -> _SamplingResult:
    """Take samples until the first quantity has enough."""
    # Where a number of samples is asked for, all calls of one stretch are one sample.
    count = None if rule.samples is None else max(1, rule.samples // sampler.calls)
    until: StoppingRule = Precision(rule) if count is None else FixedCount(count)
    elapsed, ask_at = 0.0, _WINDOW
    rows: list[tuple[float, ...]] = []
    firsts: list[float] = []
    while True:
        chunk = sampler.chunk(rule) if rule.samples is None else min(sampler.chunk(rule), rule.samples - len(rows))
        taken = sampler.take(chunk)
        rows += taken.rows
        firsts += (row[0] for row in taken.rows)
        elapsed += taken.seconds
        if watch.has_sensors:
            watch.look(len(rows))
        if len(rows) >= ask_at or elapsed >= rule.max_time or rule.samples is not None:
            if stop := until.reached(firsts, elapsed):
                return _SamplingResult(rows, elapsed, stop)
            # The question costs a sort: it is asked less often as samples grow.
            ask_at = max(len(rows) + _WINDOW, round(1.1 * len(rows)))


# Stopping rules. They are objects of their own, so that tests can ask them with invented numbers.

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
