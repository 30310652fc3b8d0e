"""Measures a task alone and together with others, in turns, so that both have the same process, memory and clocks.

On a CPU each operator has a process of its own, and the parent conducts: it tells all of them when to call in a loop.
On a device that has streams, one process has all launches, each on a stream of its own.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Sequence
from math import ceil
from statistics import median

from msgspec.structs import replace

from opmark.errors import TaskError, TimerFailed, Unsupported
from opmark.plugin import Backend, Launch, Operator
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Caution, Conditions, Measurement, Sampling, Task
from opmark.schema.codec import gc_disabled
from opmark.schema.company import Company, shares_cores
from opmark.schema.measurement import CORUN_LATENCY, MAKESPAN, PREEMPTED, SEQUENCE_TIME
from opmark.schema.messages import CheckResults, Command, EndTask, Ready, Reply, ResultsChecked, Stretch, Stretched
from opmark.units import count_noun
from opmark.worker.measure.cache import warm
from opmark.worker.measure.instruments import Instruments
from opmark.worker.measure.sampler import HostSampler
from opmark.worker.measure.stability import Observed, cautions
from opmark.worker.preparation import prepare

_SPIN = 0.002
"""Seconds before a common start in which a worker looks at the clock instead of sleeping."""
_SLICE = 0.05
"""Seconds over which calls are averaged where operators share cores: several turns of the scheduler, which takes a core
away between short calls, so that the median of single ones would show nothing of it."""
_OF_SCHEDULER = (PREEMPTED, "interrupted")
"""Cautions about cores that were taken away, which is what sharing cores means."""
_CROWDED = "crowded"


class _Samples:
    """What was sampled in one state: alone, or beside others."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.seconds = 0.0
        self.conditions: list[Conditions] = []

    def joined_conditions(self, busy_cores: float) -> Conditions:
        """Return the conditions of all stretches, without the cores that the others keep busy on purpose."""
        total = sum(one.elapsed for one in self.conditions) or 1.0
        others = [(one.others, one.elapsed) for one in self.conditions if one.others is not None]
        stolen = [one.steal for one in self.conditions if one.steal is not None]
        first = self.conditions[0]
        return Conditions(
            readings=tuple(reading for one in self.conditions for reading in one.readings),
            highest_clock=max((one.highest_clock for one in self.conditions if one.highest_clock), default=None),
            elapsed=total,
            switches=sum(one.switches for one in self.conditions),
            waited=sum(waits) if (waits := [one.waited for one in self.conditions if one.waited is not None]) else None,
            load=first.load,
            others=max(0.0, sum(value * own for value, own in others) / sum(own for _, own in others) - busy_cores)
            if others
            else None,
            steal=max(stolen, default=None),
        )


def make_measurement(
    quantity: str,
    company: Company,
    samples: Sequence[float],
    rule: Sampling,
    *,
    calls: int,
    overhead: float = 0.0,
    warmup_calls: int = 0,
    warmup_time: float = 0.0,
    conditions: Conditions | None = None,
    seconds: float = 0.0,
    real_clock: bool = True,
) -> Measurement:
    """Make the measurement of a quantity of a co-run, with its cautions."""
    known = conditions or Conditions()
    found = cautions(
        Observed(samples, rule, "budget", True, overhead, seconds, known, real_clock=real_clock and bool(conditions))
    )
    if not company.alone and shares_cores(company):
        crowded = Caution(
            _CROWDED,
            f"{count_noun(1 + len(company.others), 'operator')} share cores: the scheduler takes them away from each "
            "in turn, and times are those of such a crowd",
            "--cores split gives each operator cores of its own",
        )
        kept = [one for one in found if one.code not in _OF_SCHEDULER]
        found = (*kept, crowded) if len(kept) < len(found) else tuple(kept)
    return Measurement(
        quantity=quantity,
        cache="warm",
        timer=company.text,
        samples=list(samples),
        calls=calls,
        overhead=overhead,
        warmup_calls=warmup_calls,
        warmup_time=warmup_time,
        stop="budget",
        cautions=found,
        conditions=known,
    )


class ConductedMeasurement:
    """One operator in a process of its own. The parent says when it is called, so that all begin and end together."""

    def __init__(
        self,
        task: Task,
        backend: Backend,
        instruments: Instruments,
        launch: Launch,
        check: Callable[[], str],
        send: Callable[[Reply], None],
        receive: Callable[[], Command],
    ) -> None:
        """`check` raises WrongResult where the launch does not compute what it should."""
        assert task.settings.company is not None
        self.checked = ""
        """What `check` said."""
        self.notes: list[str] = []
        self._company = task.settings.company
        self._rule = task.settings.sampling
        self._watch = instruments.watch
        self._clock = instruments.timers["latency"]
        self._launch = launch
        self._synchronize = backend.synchronize if backend.asynchronous else None
        self._sampler = HostSampler("latency", self._clock, warm(launch), batches=not backend.asynchronous)
        self._check, self._send, self._receive = check, send, receive
        self._samples = {"alone": _Samples(), "beside": _Samples()}
        self._warmup = (0, 0.0)

    def run(self) -> tuple[Measurement, ...]:
        """Do what the parent says until the task is over."""
        self._send(Ready())
        while not isinstance(command := self._receive(), EndTask):
            if isinstance(command, Stretch):
                with gc_disabled():
                    self._send(self._timed(command) if command.calls else self._loop(command))
            elif isinstance(command, CheckResults):
                self.checked = self._check()
                self._send(ResultsChecked())
            else:
                raise TaskError(f"a task in company takes no {type(command).__name__}")
        return tuple(self._measurements())

    def _measurements(self) -> list[Measurement]:
        alone = replace(self._company, alone=True)
        busy = {"alone": 0.0, "beside": float(sum(one.threads for one in self._company.others))}
        calls, seconds = self._warmup
        return [
            make_measurement(
                CORUN_LATENCY, company, own.values, self._rule, calls=self._sampler.calls,
                overhead=self._sampler.overhead, warmup_calls=calls, warmup_time=seconds,
                conditions=own.joined_conditions(busy[name]), seconds=own.seconds, real_clock=not self._sampler.virtual,
            )
            for name, company in (("beside", self._company), ("alone", alone))
            if (own := self._samples[name]).values
        ]  # fmt: skip

    def _timed(self, stretch: Stretch) -> Stretched:
        """Make an exact number of calls from the common start on."""
        self._call_once()
        _wait_until(stretch.begin)
        begun = time.monotonic()
        spent = self._clock.time(self._launch, stretch.calls)
        return Stretched(begun, begun + spent, spent / stretch.calls, spent, 1)

    def _loop(self, stretch: Stretch) -> Stretched:
        """Call in a loop: first unsampled, then for so long, or until the parent says something. A sample that ends
        after that does not count, because the others may have stopped by then."""
        if not self._warmup[0]:
            spent, _ = self._sampler.prepare(self._rule)
            self._warmup = spent
        _wait_until(stretch.begin)
        begun = time.monotonic()
        while time.monotonic() < begun + stretch.settle:
            self._sampler.take(1)
        if stretch.seconds is None:
            while not _is_told_something():
                self._sampler.take(1)
            return Stretched(begun, time.monotonic(), 0.0, 0.0, 0)
        self._watch.begin()
        start = time.monotonic()
        samples: list[float] = []
        ends: list[float] = []
        while True:
            row = self._sampler.take(1).rows[0]
            if (now := time.monotonic()) > stretch.begin + stretch.settle + stretch.seconds:
                break
            samples.append(row[0])
            ends.append(now)
        ended = time.monotonic()
        if shares_cores(self._company):
            samples = mean_per_slice(start, ends, self._sampler.calls)
        conditions = self._watch.end(len(samples))
        if stretch.keep and samples:
            own = self._samples[stretch.keep]
            own.values += samples
            own.seconds += ended - start
            own.conditions.append(conditions)
        centre = median(samples) if samples else ended - begun
        return Stretched(begun, ended, centre, centre * self._sampler.calls, len(samples))

    def _call_once(self) -> None:
        """Wake threads up, which a wait has put to sleep."""
        self._launch()
        if self._synchronize:
            self._synchronize()


def mean_per_slice(start: float, ends: Sequence[float], calls: int) -> list[float]:
    """Return the seconds of a call in each slice of time, from the ends of samples of so many calls. The last slice
    takes what is left."""
    found: list[float] = []
    begun, count = start, 0
    for end in ends:
        count += calls
        if end == ends[-1] or min(end - begun, ends[-1] - end) >= _SLICE:
            found.append((end - begun) / count)
            begun, count = end, 0
    return found


def _wait_until(begin: float) -> None:
    left = begin - time.monotonic() - _SPIN
    if left > 0:
        time.sleep(left)
    while time.monotonic() < begin:
        pass


def _is_told_something() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


# Streams of one process on a device.

_ROUNDS = 12
"""Samples of each state, half of them before and half after the other ones."""
_STRETCH = 5e-3
"""Seconds of the device that a sample lasts at least."""
_MOST_CALLS = 400
"""Calls of all streams together that are queued at once."""
_COVER = 1.3
"""How much longer than the timed calls the others go on, as if each took its full share of the device."""


class StreamMeasurement:
    """All operators in one process, each on a stream of its own. Of the first one, this also measures the makespan."""

    def __init__(
        self,
        task: Task,
        operator: Operator,
        backend: Backend,
        instruments: Instruments,
        launch: Launch,
        check: Callable[[], str],
    ) -> None:
        assert task.settings.company is not None
        self.checked = ""
        self.notes: list[str] = []
        self._task, self._company = task, task.settings.company
        self._rule, self._watch = task.settings.sampling, instruments.watch
        others = [self._prepare(number, backend) for number in range(len(self._company.others))]
        self._launches = [*others[: self._company.place], launch, *others[self._company.place :]]
        self._streams = backend.streams(self._launches)
        self._check = check

    def _prepare(self, number: int, backend: Backend) -> Launch:
        """Prepare one of the others as its own task would be."""
        other = self._company.others[number]
        operator, case = find_operator(other.op), other.case
        known = {one.label: one for one in implementations(operator, backend.info, every=True)}
        if other.implementation not in known:
            raise Unsupported(f"its companion `{other.op}` has no implementation `{other.implementation}` here")
        settings = replace(self._task.settings, company=None, configuration=other.configuration)
        beside = Task(case, self._task.backend, other.implementation, settings)
        try:
            return prepare(case.params, beside, operator, known[other.implementation], backend).launch
        except TaskError as error:
            raise type(error)(f"its companion {other.text}: {error.message}") from error

    def run(self) -> tuple[Measurement, ...]:
        place, count = self._company.place, len(self._launches)
        seconds = [self._alone(index, 1) for index in range(count)]  # the first calls load what they need
        seconds = [self._alone(index, 2) / 2 for index in range(count)]
        timed = max(1, min(_MOST_CALLS // (2 * count), ceil(_STRETCH / max(seconds[place], 1e-9))))
        # The others have to be at work until the last timed call is done.
        share = _MOST_CALLS // count
        others = [own for index, own in enumerate(seconds) if index != place]
        timed = max(1, min(timed, int(share * min(others) / max(_COVER * count * seconds[place], 1e-9))))
        cover = count * timed * seconds[place]
        beside = [min(share, ceil(_COVER * cover / max(own, 1e-9))) for own in seconds]
        beside[place] = timed
        if any(share * own < cover for own in others):
            self.notes.append("calls of a companion are too short for the queue: it may have ended before the last one")
        alone_samples: list[float] = []
        beside_samples: list[float] = []
        self._watch.begin()
        for number in range(_ROUNDS):
            states = (True, False) if number % 2 == 0 else (False, True)
            for alone in states:
                if alone:
                    alone_samples.append(self._alone(place, timed) / timed)
                else:
                    beside_samples.append(self._streams.run(beside)[place] / timed)
        conditions = self._watch.end(_ROUNDS)
        found = [
            self._measurement(CORUN_LATENCY, self._company, beside_samples, timed, conditions),
            self._measurement(CORUN_LATENCY, replace(self._company, alone=True), alone_samples, timed, conditions),
        ]
        if place == 0:
            found += self._makespans(seconds, conditions)
        # Calls of the others are queued first, so that the launch is checked beside them.
        busy = [0 if index == place else calls for index, calls in enumerate(beside)]
        self._streams.start(busy)
        self.checked = self._check()
        return tuple(found)

    def _alone(self, index: int, calls: int) -> float:
        return self._streams.run([calls if one == index else 0 for one in range(len(self._launches))])[index]

    def _makespans(self, seconds: Sequence[float], conditions: Conditions) -> list[Measurement]:
        """Measure rounds of one call each: together, in a captured graph if that is possible, and in sequence."""
        count = len(self._launches)
        rounds = max(1, min(_MOST_CALLS // (2 * count), ceil(_STRETCH / max(sum(seconds), 1e-9))))
        try:
            together = self._streams.capture([rounds] * count)
            parts = [self._streams.capture([rounds if i == own else 0 for i in range(count)]) for own in range(count)]
            self.notes.append("makespan and sequence_time: by captured graphs, whose branches are the streams")
        except TimerFailed as failure:
            self.notes.append(f"makespan and sequence_time: by events, not by a captured graph: {failure.message}")
            together = self._run_together(rounds)
            parts = [self._run_alone(own, rounds) for own in range(count)]
        makespans: list[float] = []
        sequences: list[float] = []
        for number in range(_ROUNDS):
            order = (makespans, sequences) if number % 2 == 0 else (sequences, makespans)
            for samples in order:
                spent = together() if samples is makespans else sum(part() for part in parts)
                samples.append(spent / rounds)
        return [
            self._measurement(MAKESPAN, self._company, makespans, rounds, conditions),
            self._measurement(SEQUENCE_TIME, self._company, sequences, rounds, conditions),
        ]

    def _run_together(self, rounds: int) -> Callable[[], float]:
        return lambda: max(self._streams.run([rounds] * len(self._launches)))

    def _run_alone(self, index: int, rounds: int) -> Callable[[], float]:
        return lambda: self._alone(index, rounds)

    def _measurement(
        self, quantity: str, company: Company, samples: Sequence[float], calls: int, conditions: Conditions
    ) -> Measurement:
        found = make_measurement(quantity, company, samples, self._rule, calls=calls, conditions=conditions)
        # The device's own times do not depend on who has a core.
        of_host = (*_OF_SCHEDULER, _CROWDED)
        return replace(found, cautions=tuple(one for one in found.cautions if one.code not in of_host))
