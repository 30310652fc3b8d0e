"""Samplers: by a host timer, the device's trace, events or a captured graph. Each gives rows of one value per quantity,
in seconds per call. `cross_check` compares two of them, and `measure_energy` samples an energy counter."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from opmark.errors import TimerFailed, Unsupported
from opmark.plugin import Activity, DeviceClock, Launch, Timer, Trace
from opmark.schema import EFFORTS, QUANTITIES, Caution, CrossCheck, Kernel, Measurement, Sampling
from opmark.units import percent, seconds
from opmark.worker.measure.cache import LaunchSource
from opmark.worker.measure.instruments import ConditionsMonitor

# A sample has to last this many steps of the clock, so that reading it is off by at most 0.1 %.
_CLOCK_STEPS = 1000
_MAX_CALLS = 1_000_000
# A stretch of back-to-back calls is so much longer than a sample of single ones.
_STRETCH = 20
# For a trace: calls per session, launches that a device's queue holds, seconds for which it may be held.
_MOST_TRACED = 50
_FEWEST_TRACED = 5
_QUEUE = 900
_LONGEST_HOLD = 0.02
# Where the device is let go when all calls are queued: seconds that this may take.
_LONGEST_QUEUEING = 0.05
# A burst of work this long leaves the clock where it was; after one the device rests as long as it has worked.
_LONGEST_BURST = 0.02
_SHORT_BURST = 0.005
_TRIAL = 3


class TimeBudget(NamedTuple):
    calls: int
    seconds: float


class SampleRows(NamedTuple):
    rows: list[tuple[float, ...]]
    seconds: float
    """Seconds that count against the budget."""


class Sampler(Protocol):
    quantities: tuple[str, ...]
    supply: LaunchSource
    timer: str
    calls: int
    """Number of calls that one sample is the mean of."""
    overhead: float
    """Seconds per call that are subtracted already."""
    virtual: bool
    """Whether time only seems to pass, or passes on another machine, so that the state of this one says nothing."""
    traces: bool
    """Whether the sampler sees what the device ran, so that nothing seen means nothing run."""
    lost: int
    """Calls whose records the device lost."""
    stray: int
    """Activities of the device that belong to no call."""

    def prepare(self, rule: Sampling) -> tuple[TimeBudget, list[float]]:
        """Do whatever is needed before the first sample: (what that cost, seconds of the calls made meanwhile)."""

    def chunk(self, rule: Sampling) -> int:
        """Number of samples to take at once."""

    def take(self, count: int) -> SampleRows: ...

    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels that the device ran for a call, where that is known."""

    def warm(self, launch: Launch) -> float | None:
        """Make one call before the first sample: its seconds, where this sampler can time a single call."""


class HostSampler:
    """Samples one quantity by a clock around the call. Short calls are batched, unless something comes between them."""

    traces = False
    lost = stray = 0

    def __init__(self, quantity: str, timer: Timer, supply: LaunchSource, *, batches: bool) -> None:
        self.quantities: tuple[str, ...] = (quantity,)
        self.supply = supply
        self.timer = timer.name
        self.calls = 1
        self.overhead = 0.0
        self.virtual = timer.name == "virtual" or QUANTITIES[quantity].on == "device"
        self._clock = timer
        self._batches = batches and supply.before is None and (quantity == "throughput" or not supply.rotates)
        self._stretch = _STRETCH if quantity == "throughput" else 1

    def prepare(self, rule: Sampling) -> tuple[TimeBudget, list[float]]:
        if rule.samples is not None:
            self.calls = rule.samples if self.quantities == ("throughput",) else 1
            spent, shown = TimeBudget(0, 0.0), list[float]()
        elif self._batches:
            target = max(self._stretch * rule.sample_time, _CLOCK_STEPS * self._clock.resolution)
            self.calls, shown, spent = fit_batch(self._once, target, self._clock.resolution)
        else:
            shown = [self._once(1), self._once(1)]
            spent = TimeBudget(2, sum(shown))
        self.overhead = self._clock.overhead(self.calls) / self.calls
        return spent, shown

    def chunk(self, rule: Sampling) -> int:
        return 1

    def take(self, count: int) -> SampleRows:
        start = time.perf_counter()
        raw = [self._once(self.calls) for _ in range(count)]
        # Making a call cold is charged to the budget too. A clock that stands still must not mean sampling without end.
        virtual_only = self.timer == "virtual" and self.supply.before is None
        spent = max(sum(raw), self._clock.resolution) if virtual_only else time.perf_counter() - start
        return SampleRows([(max(0.0, value / self.calls - self.overhead),) for value in raw], spent)

    def kernels(self) -> tuple[Kernel, ...]:
        return ()

    def warm(self, launch: Launch) -> float:
        if self.supply.before:
            self.supply.before()
        return self._clock.time(launch, 1)

    def _once(self, calls: int) -> float:
        if self.supply.before:
            self.supply.before()
        launch = self._in_turn if calls > 1 and self.supply.rotates else self.supply.next()
        return self._clock.time(launch, calls)

    def _in_turn(self) -> Any:
        return self.supply.next()()


def fit_batch(clock: Callable[[int], float], target: float, resolution: float) -> tuple[int, list[float], TimeBudget]:
    """(calls that last as long as `target`, seconds of the last two batches, what finding out has cost).

    A batch is long enough if it is so twice: a first call may be slow for reasons of its own.
    """
    calls, spent, made = 1, 0.0, 0
    while True:
        elapsed = first = clock(calls)
        spent, made = spent + elapsed, made + calls
        if first >= target or calls >= _MAX_CALLS:
            elapsed = clock(calls)
            spent, made = spent + elapsed, made + calls
            if elapsed >= target / 2 or calls >= _MAX_CALLS:
                return calls, [first, elapsed], TimeBudget(made, spent)
        # Aim a little beyond the target, and never grow more than tenfold on the word of a cold call.
        aim = 1.1 * target / max(elapsed, resolution) * calls
        calls = min(_MAX_CALLS, max(calls + 1, min(10 * calls, round(aim))))


class _OnDevice:
    """Base of samplers that see many calls at once, and cannot time a single one."""

    def warm(self, launch: Launch) -> None:
        launch()


class TraceSampler(_OnDevice):
    """Samples device_time and device_span, or unqueued_time, from the device's own record of every kernel."""

    traces = True
    calls = 1
    overhead = 0.0
    virtual = False

    def __init__(
        self, clock: DeviceClock, supply: LaunchSource, *, ahead: int = _QUEUE, wait: Launch | None = None
    ) -> None:
        """`ahead`: number of calls that the framework launches before it waits for one of them; 0 if every call waits
        for its work. With `wait`, which waits for the device, each call finds it idle; else calls are queued."""
        self.supply = supply
        self.quantities: tuple[str, ...] = ("unqueued_time",) if wait else ("device_time", "device_span")
        self.timer = clock.name
        self.lost = self.stray = 0
        self._clock = clock
        self._most = max(1, ahead // (2 if supply.before else 1)) if ahead else _MOST_TRACED
        self._traced = _FEWEST_TRACED
        self.queues = wait is None and ahead > 0
        """Whether calls are queued before the device begins with them; false once one has turned out to wait for it."""
        self._before = supply.before if wait is None else _one_after_the_other(supply.before, wait)
        self._hold = 0.0
        self._seen: list[list[Activity]] = []

    def prepare(self, rule: Sampling) -> tuple[TimeBudget, list[float]]:
        """A short trace says how many calls fit into the queue and how long the device has to be held meanwhile."""
        start = time.perf_counter()
        gated = self.queues and self._clock.opens_gate
        trial = self._trace(_TRIAL, _LONGEST_HOLD if gated else 0.0)
        if gated and not trial.queued:  # a call that waits for the device, or one that loaded something first
            trial = self._trace(_TRIAL, _LONGEST_HOLD)
        elapsed = time.perf_counter() - start
        if not any(trial.calls) and trial.lost:
            raise TimerFailed(f"{self.timer} lost the records of all {_TRIAL} calls of a trial")
        launches = max(1, *map(len, trial.calls)) + 2
        fewest = 1 if gated else _FEWEST_TRACED
        long = max(map(busy, trial.calls))
        self._traced = min(burst(long, fewest), max(fewest, _QUEUE // launches), self._most)
        if gated and rule.samples is None:  # a session costs little besides its records
            self._traced = min(self._traced, rule.min_samples)
        if gated:
            self.queues = trial.queued
            self._hold = _LONGEST_QUEUEING if trial.queued else 0.0
        elif self.queues:  # the profiler makes launching about three times as slow
            self._hold = min(_LONGEST_HOLD, self._traced * 3 * launch_cost(self.supply))
        return TimeBudget(2 * _TRIAL, elapsed), []

    def chunk(self, rule: Sampling) -> int:
        return self._traced

    def take(self, count: int) -> SampleRows:
        start = time.perf_counter()
        trace = self._trace(count, self._hold)
        while not trace.queued and self._hold:
            # The device was let go before the last call had been launched: gaps would be a part of the spans.
            if count == 1:
                self._hold, self.queues = 0.0, False
            count = self._traced = max(1, count // 2)
            trace = self._trace(count, self._hold)
        self.lost += trace.lost
        self.stray += trace.stray
        self._seen = trace.calls
        # Without a record of its own a call that launched nothing took no time; one with lost records is no sample.
        complete = [call for call in trace.calls if call or not trace.lost]
        if not complete:
            raise TimerFailed(f"{self.timer} lost the records of all {count} calls")
        rows: list[tuple[float, ...]] = [(busy(c), span(c))[: len(self.quantities)] for c in complete]
        rest(sum(row[0] for row in rows))
        return SampleRows(rows, time.perf_counter() - start)

    def kernels(self) -> tuple[Kernel, ...]:
        return profile_of(self._seen)

    def _trace(self, count: int, hold: float) -> Trace:
        return self._clock.trace(self.supply.some(count), self._before, hold)


def _one_after_the_other(before: Launch | None, wait: Launch) -> Launch:
    def prepare_call() -> None:
        if before:
            before()
        wait()

    return prepare_call


class EventSampler:
    """Samples the time between two events around each call, for device_span with the device held first."""

    calls = 1
    virtual = traces = False
    lost = stray = 0

    def __init__(self, quantity: str, clock: DeviceClock, supply: LaunchSource) -> None:
        self.quantities: tuple[str, ...] = (quantity,)
        self.supply = supply
        self.timer = "events"
        self.overhead = 0.0
        self._clock = clock
        self._holds = quantity == "device_span"
        self._hold = 0.0
        self._chunk = 1

    def prepare(self, rule: Sampling) -> tuple[TimeBudget, list[float]]:
        start = time.perf_counter()
        self._chunk = burst(max(self._clock.queued(self.supply.some(_TRIAL), self.supply.before, 0.0)))
        if self._holds:
            self._hold = min(_LONGEST_HOLD, self._chunk * 2 * launch_cost(self.supply))
            self.overhead = median(self._clock.queued([_nothing] * _MOST_TRACED, None, 1e-3))
        return TimeBudget((2 if self._holds else 1) * _TRIAL, time.perf_counter() - start), []

    def chunk(self, rule: Sampling) -> int:
        return self._chunk

    def take(self, count: int) -> SampleRows:
        start = time.perf_counter()
        found = self._clock.queued(self.supply.some(count), self.supply.before, self._hold)
        rest(sum(found))
        return SampleRows([(max(0.0, value - self.overhead),) for value in found], time.perf_counter() - start)

    def kernels(self) -> tuple[Kernel, ...]:
        return ()

    def warm(self, launch: Launch) -> float:
        return self._clock.queued([launch], self.supply.before, 0.0)[0]


class GraphSampler(_OnDevice):
    """Samples device_span of calls in a captured graph: no launch at all, only the gaps between nodes."""

    quantities: tuple[str, ...] = ("device_span",)
    overhead = 0.0
    virtual = traces = False
    lost = stray = 0
    timer = "graph"

    def __init__(self, clock: DeviceClock, supply: LaunchSource) -> None:
        self.supply = supply
        self.calls = max(20, len(supply.launches)) // len(supply.launches) * len(supply.launches)
        self._clock = clock
        self._replay: Callable[[], float] | None = None

    def prepare(self, rule: Sampling) -> tuple[TimeBudget, list[float]]:
        start = time.perf_counter()
        self._replay = self._clock.capture(self.supply.some(self.calls))
        return TimeBudget(2 * self.calls, time.perf_counter() - start), []

    def chunk(self, rule: Sampling) -> int:
        return 1

    def take(self, count: int) -> SampleRows:
        assert self._replay is not None
        start = time.perf_counter()
        rows: list[tuple[float, ...]] = [(self._replay(),) for _ in range(count)]
        return SampleRows(rows, max(sum(row[0] for row in rows) * self.calls, time.perf_counter() - start))

    def kernels(self) -> tuple[Kernel, ...]:
        return ()


def burst(seconds: float, fewest: int = _FEWEST_TRACED) -> int:
    """Number of calls of that length to make at once."""
    return max(fewest, min(_MOST_TRACED, int(_LONGEST_BURST / max(seconds, 1e-9))))


def rest(worked: float) -> None:
    """Let the device rest: else the power limit would pull the clock down, further and further into the samples."""
    if worked > _SHORT_BURST:
        time.sleep(min(worked, 1.0))


def launch_cost(supply: LaunchSource) -> float:
    """Seconds that the caller takes for a call, roughly; the device may still be at it."""
    took = []
    for launch in supply.some(_TRIAL):
        start = time.perf_counter()
        launch()
        took.append(time.perf_counter() - start)
    return min(took)


def busy(call: Sequence[Activity]) -> float:
    return sum(activity.end - activity.start for activity in call)


def span(call: Sequence[Activity]) -> float:
    return max(a.end for a in call) - min(a.start for a in call) if call else 0.0


def profile_of(calls: Sequence[Sequence[Activity]]) -> tuple[Kernel, ...]:
    """Launches and time per call of each kernel, the longest first: the mean over the calls that have records."""
    times: dict[str, list[float]] = defaultdict(list)
    for activity in (activity for call in calls for activity in call):
        times[activity.name].append(activity.end - activity.start)
    count = sum(bool(call) for call in calls) or 1
    kernels = (Kernel(name, len(found) / count, sum(found) / count) for name, found in times.items())
    return tuple(sorted(kernels, key=lambda kernel: -kernel.time))


def _nothing() -> None:
    return None


# A second timer: two that agree are hardly both wrong.

AGREE = 0.05
# What an event and the start of a kernel behind it cost the device, which no subtraction takes off exactly.
FLOOR = 3e-6
_SAMPLES = 20


def cross_check(measurement: Measurement, second: EventSampler) -> Measurement:
    """The measurement with what the second timer said, and a caution where they differ."""
    second.prepare(EFFORTS["quick"])
    count = min(_SAMPLES, second.chunk(EFFORTS["quick"]))
    other = median([row[0] for row in second.take(count).rows])
    own = median(measurement.samples)
    found = replace(measurement, check=CrossCheck(second.timer, other))
    if abs(other - own) <= max(AGREE * own, FLOOR):
        return found
    caution = Caution(
        "timers-disagree",
        f"{measurement.timer} says {seconds(own)}, {second.timer} say {seconds(other)}; up to {percent(AGREE)} or "
        f"{seconds(FLOOR)} is usual",
        "the call may wait for the device, use another stream, or be launched too slowly to fill the queue: "
        "device_time does not depend on it",
    )
    return replace(found, cautions=(*measurement.cautions, caution))


# Energy per call, in a loop from one step of the counter to another, so that coarse steps do not matter.

_WINDOWS = 3
_WINDOW = 0.5
_BETWEEN_LOOKS = 2e-3
_STUCK = 5.0
"""Seconds after which a counter that stands still is no counter."""


def measure_energy(launch: Launch, synchronize: Callable[[], object], watch: ConditionsMonitor) -> Measurement:
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
    def __init__(self, launch: Launch, synchronize: Callable[[], object], watch: ConditionsMonitor, batch: int) -> None:
        self._work = launch, synchronize, batch
        self._watch = watch

    def until_step(self, at_least: float) -> tuple[float, int]:
        """Call until that much time has passed and the counter makes its next step: (its value, number of calls)."""
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
