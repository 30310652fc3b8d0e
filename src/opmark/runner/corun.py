"""Conducts operators that run at the same time: one round measures all of them alone and together, in turns.

On a CPU, each operator has a worker pinned to cores, and another one that may use all cores of the company, as it could
if the operators ran one after the other. The parent tells the workers when to begin; their clocks are the same. A
device with streams does all this in one process, and is only asked for each operator.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from statistics import median

from msgspec.structs import replace

from opmark.plugin.registry import backend as find_backend
from opmark.runner.supervisor import Supervisor, WorkerOptions
from opmark.runner.worker_process import WorkerDied, record_of_death
from opmark.schema import EFFORTS, Measurement, Record, Resources, Settings, Task
from opmark.schema.company import Companion, Company, cores_text
from opmark.schema.measurement import CORUN_LATENCY, MAKESPAN, PREEMPTED, SEQUENCE_TIME
from opmark.schema.messages import (
    CheckResults,
    CompanyReply,
    EndTask,
    Ready,
    RunTask,
    Stage,
    Stretch,
    Stretched,
    TaskReply,
    encode,
)
from opmark.schema.record import IN_SEQUENCE, MEASURED, utc_now
from opmark.units import count_noun
from opmark.worker.company import make_measurement

_LEAD = 0.01
"""Seconds from the order until the common start."""
_QUIET = 0.25
"""Seconds after which threads of a math library that have nothing to do are asleep: OpenBLAS lets them look for work
for some 30 ms, Intel's OpenMP for 200 ms."""
_FEWEST_SAMPLES = 3
_ENLARGEMENTS = 3
"""How often a stretch is repeated, each time twice as long, where an operator had too few whole samples."""
_ROUND_TIME = 5e-3
"""Seconds that a sample of the makespan lasts at least: workers begin within some microseconds of each other. A longer
one would more often contain a turn of another process."""
_MAKESPANS = (10, 40)
"""Fewest and most samples of the makespan in one process."""
_LATE = 0.02
"""Share of a sample of the makespan by which an operator may begin after the others; later ones are taken again."""
_LATE_TRIES = 3


@dataclass(frozen=True)
class Member:
    """One of the operators that run together: what it does in company, and how it would run with all to itself."""

    task: Task
    """Without company. Its threads are those that it has beside the others."""
    cores: tuple[int, ...] = ()
    """Cores that it is pinned to beside the others; empty: it is not pinned."""
    solo: Task | None = None
    """How it runs in a sequence, with all cores of the company to itself. None: as it does beside the others."""
    solo_cores: tuple[int, ...] = ()


def member_tasks(members: Sequence[Member], process: int) -> list[Task]:
    """Return the task of each member beside all others, in one of the processes."""
    companions = [Companion.of(one.task, one.cores) for one in members]
    streams = share_streams([one.task.backend for one in members])
    return [
        _with_settings(
            one.task,
            process=process,
            company=Company(tuple(companions[:place] + companions[place + 1 :]), one.cores, place, streams=streams),
        )
        for place, one in enumerate(members)
    ]


def share_streams(backends: Sequence[str]) -> bool:
    """Return whether operators of these backends run in one process, each on a stream of the device."""
    return len(set(backends)) == 1 and find_backend(backends[0]).streams


def alone_task(task: Task) -> Task:
    """Return the task of a member that is measured alone, in turns with being measured beside the others."""
    company = task.settings.company
    assert company is not None
    return _with_settings(task, company=replace(company, alone=True))


def solo_task(member: Member, task: Task) -> Task | None:
    """Return the task of a member with all cores to itself; None where it has no other way there."""
    company = task.settings.company
    if member.solo is None:
        return None
    assert company is not None
    alone = replace(company, alone=True, cores=member.solo_cores)
    return _with_settings(member.solo, process=task.settings.process, company=alone)


def _with_settings(task: Task, **changed: object) -> Task:
    settings: Settings = replace(task.settings, **changed)
    return replace(task, settings=settings)


def round_of(members: Sequence[Member], process: int, done: Mapping[str, Record]) -> list[Record]:
    """Return the records of a round of a company together that an interrupted run has; none where it lacks one. A round
    is stored as a whole, with its records alone."""
    found = [done.get(task.id) for task in member_tasks(members, process)]
    return [one for one in found if one] if all(found) else []


def run_company(members: Sequence[Member], process: int, options: WorkerOptions) -> Iterator[Record]:
    """Yield the records of one round in fresh processes: for each member together and alone, whatever becomes of it. A
    member that fails does not lose the others: these have their records alone, and one that says who failed."""
    tasks = member_tasks(members, process)
    company = tasks[0].settings.company
    if company is not None and company.streams:
        yield from _run_on_streams(tasks, options)
        return
    for attempt in range(2):
        with ExitStack() as stack:
            conductor = _Conductor(members, tasks, options, stack)
            records = list(conductor.run())
            trapped = [worker.task for worker in conductor.every if worker.trapped]
        if not trapped or attempt:
            yield from records
            return
        # The machine traps instructions that its processor advertises: a supervisor finds what does not, and keeps it.
        for task in trapped:
            supervisor = Supervisor(find_backend(task.backend), task.settings.threads, options)
            supervisor.run(_with_settings(task, company=None, effort="quick", sampling=EFFORTS["quick"]))
            supervisor.close()


def _run_on_streams(tasks: Sequence[Task], options: WorkerOptions) -> Iterator[Record]:
    info = find_backend(tasks[0].backend)
    for task in tasks:
        worker = Supervisor(info, task.settings.threads, options)
        try:
            yield from split_record(worker.run(task))
        finally:
            worker.close()


def split_record(record: Record) -> Iterator[Record]:
    """Yield the record of a member together, and then the one alone, of what its worker says of both."""
    together = [one for one in record.measurements if not one.timer.startswith("alone")]
    alone = [one for one in record.measurements if one.timer.startswith("alone")]
    for task, measurements in ((record.task, together), (alone_task(record.task), alone)):
        if not measurements and record.status in MEASURED:
            continue
        spoilt = [caution for one in measurements for caution in one.cautions if caution.code == PREEMPTED]
        if measurements or task is record.task:
            yield replace(
                record,
                task=task,
                measurements=tuple(measurements),
                status="disturbed" if spoilt else record.status,
                reason=spoilt[0].message if spoilt else record.reason,
            )


def pinned_to(cores: Sequence[int]) -> Resources | None:
    """Return what makes a worker run on these cores; None without cores."""
    return Resources(cores=tuple(cores)) if cores else None


class _Failed(Exception):
    """A member has ended its task before its time; its record says why."""


class _CompanyWorker:
    """The worker of one member, and what it has said."""

    def __init__(self, task: Task, cores: tuple[int, ...], options: WorkerOptions, stack: ExitStack) -> None:
        info = find_backend(task.backend)
        self.task = task
        self.record: Record | None = None
        """Why there is nothing more to be had of it, or what it has measured."""
        self.per_call = 0.0
        """Seconds of a call, alone."""
        self.sample = 0.0
        self.trapped = False
        """Whether it met an instruction that this machine does not have or does not allow."""
        self._options = options
        self._supervisor = Supervisor(info, task.settings.threads, options, resources=pinned_to(cores))
        self._doing, self._since = "starting", time.perf_counter()
        stack.callback(self._supervisor.close)

    @property
    def works(self) -> bool:
        return self.record is None

    def launch(self) -> None:
        """Start the process without waiting for it: a failure shows when it is waited for."""
        try:
            self._supervisor.launch()
        except WorkerDied:
            return

    def begin(self) -> None:
        """Wait for the process, and give it the task."""
        self._options.begin(self.task)
        self._since = time.perf_counter()
        try:
            hello = self._supervisor.start()
            if hello.unavailable:
                self.record = Record(self.task, "skipped", hello.unavailable, started=utc_now())
                return
            self._supervisor.process.send(encode(RunTask(self.task)))
        except WorkerDied as death:
            self._die(death)

    def await_ready(self) -> None:
        if not self.works:
            return
        limit, doing = self._options.timeout, "running the task"
        try:
            while True:
                reply = self._supervisor.process.reply(limit, doing)
                if isinstance(reply, Ready):
                    return
                if isinstance(reply, TaskReply):
                    self._end(reply)
                    return
                assert isinstance(reply, Stage)
                compiles = reply.stage == "compile"
                limit = self._options.compile_timeout if compiles else self._options.timeout
                doing = "compiling" if compiles else "running the task"
        except WorkerDied as death:
            self._die(death)

    def order(self, command: Stretch | CheckResults | EndTask, doing: str) -> None:
        self._doing = doing
        try:
            self._supervisor.process.send(encode(command))
        except WorkerDied as death:
            self._die(death)
            raise _Failed from None

    def answer(self, longer: float = 0.0) -> CompanyReply:
        """Wait for the answer to an order, which may take `longer` than a task. Raise _Failed where there is none."""
        try:
            reply = self._supervisor.process.reply(self._options.timeout + longer, self._doing)
        except WorkerDied as death:
            self._die(death)
            raise _Failed from None
        if isinstance(reply, TaskReply):
            self._end(reply)
            raise _Failed
        assert isinstance(reply, CompanyReply)
        return reply

    def stretched(self, longer: float = 0.0) -> Stretched:
        reply = self.answer(longer)
        assert isinstance(reply, Stretched)
        return reply

    def finish(self) -> None:
        """Have the worker send its record."""
        if not self.works:
            return
        try:
            self.order(EndTask(), "ending the task")
            self.answer()
        except _Failed:
            return

    def _end(self, reply: TaskReply) -> None:
        self.record = replace(reply.record, environment=self._supervisor.environment)

    def _die(self, death: WorkerDied) -> None:
        self.trapped = death.illegal and find_backend(self.task.backend).device == "cpu"
        took = time.perf_counter() - self._since
        record = record_of_death(self.task, death, took, self._supervisor.environment)
        self.record = replace(record, untried=False, reason=death.reason)
        self._supervisor.close()


class _Conductor:
    """Conducts the workers of one round."""

    def __init__(
        self, members: Sequence[Member], tasks: Sequence[Task], options: WorkerOptions, stack: ExitStack
    ) -> None:
        self._rule = tasks[0].settings.sampling
        self._tasks = tasks
        self._workers = [
            _CompanyWorker(task, one.cores, options, stack) for task, one in zip(tasks, members, strict=True)
        ]
        self._solo: dict[int, _CompanyWorker] = {}
        for place, (one, task) in enumerate(zip(members, tasks, strict=True)):
            solo = solo_task(one, task)
            if solo:
                self._solo[place] = _CompanyWorker(solo, one.solo_cores, options, stack)
        self._together: dict[str, list[float]] = {}
        """Samples of makespan and sequence."""
        self._notes: list[str] = []
        self._last: Sequence[_CompanyWorker] = ()
        """Workers that were called last."""
        self._rounds = 1
        self.every = [*self._workers, *self._solo.values()]

    def run(self) -> Iterator[Record]:
        every = self.every
        for worker in every:
            worker.launch()
        for worker in every:
            worker.begin()
        for worker in every:
            worker.await_ready()
        order = every if self._tasks[0].settings.process % 2 == 0 else every[::-1]
        for worker in order:
            self._warm_up(worker)
        for worker in order:
            self._alone(worker)
        if self._all_work():
            try:
                self._beside()
                self._beside()
            except _Failed:
                pass
        for worker in reversed(order):
            self._alone(worker)
        if self._all_work():
            try:
                self._measure_makespans()
                self._check_together()
            except _Failed:
                pass
        for worker in every:
            worker.finish()
        yield from self._records()

    def _all_work(self) -> bool:
        return all(worker.works for worker in self._workers)

    # Alone.

    def _warm_up(self, worker: _CompanyWorker) -> None:
        rule = self._rule
        self._stretch_alone(worker, Stretch(0.0, rule.warmup_min, rule.warmup_min))

    def _alone(self, worker: _CompanyWorker) -> None:
        settle = max(self._rule.warmup_min, 2 * worker.sample)
        length = max(self._rule.max_time / 2, (_FEWEST_SAMPLES + 1) * worker.sample)
        self._stretch_alone(worker, Stretch(0.0, settle, length, keep="alone"))

    def _stretch_alone(self, worker: _CompanyWorker, stretch: Stretch) -> None:
        if not worker.works:
            return
        self._take_over([worker])
        try:
            worker.order(replace(stretch, begin=time.monotonic() + _LEAD), "measuring it alone")
            found = worker.stretched(stretch.settle + (stretch.seconds or 0.0))
        except _Failed:
            return
        worker.per_call, worker.sample = found.per_call, found.sample

    # Together.

    def _beside(self) -> None:
        """Let all run in a loop until each has enough whole samples."""
        longest = max(worker.sample for worker in self._workers)
        length = max(self._rule.max_time / 2, (_FEWEST_SAMPLES + 2) * len(self._workers) * longest)
        settle = max(self._rule.warmup_min, 2 * longest)
        for _ in range(_ENLARGEMENTS):
            self._take_over(self._workers)
            found = self._all(Stretch(time.monotonic() + _LEAD, settle, length, keep="beside"), settle + length)
            if min(one.samples for one in found) >= _FEWEST_SAMPLES:
                return
            length *= 2

    def _take_over(self, workers: Sequence[_CompanyWorker]) -> None:
        """Wait until the threads of those that were called before have stopped looking for more work."""
        if any(one.task.settings.threads > 1 and one not in workers for one in self._last):
            time.sleep(_QUIET)
        self._last = workers

    def _all(self, stretch: Stretch, longer: float) -> list[Stretched]:
        for worker in self._workers:
            worker.order(stretch, "measuring it beside the others")
        return [worker.stretched(longer) for worker in self._workers]

    def _measure_makespans(self) -> None:
        """Measure rounds of one call of each member, together and in sequence, in turns. In a sequence each is timed
        with its own cores and with all of them; the quicker of the two in this process counts."""
        ways = [
            [worker, *([self._solo[place]] if place in self._solo and self._solo[place].works else [])]
            for place, worker in enumerate(self._workers)
        ]
        one_round = sum(min(worker.per_call for worker in own) for own in ways)
        self._rounds = rounds = max(1, ceil(_ROUND_TIME / max(one_round, 1e-9)))
        fewest, most = _MAKESPANS
        count = max(fewest, min(most, int(self._rule.max_time / max(rounds * one_round, 1e-9))))
        together: list[float] = []
        apart: dict[tuple[int, int], list[float]] = defaultdict(list)
        # Half of the samples in this order, and half in the other one.
        blocks: list[tuple[int, int] | None] = [None]
        blocks += [(place, way) for place, own in enumerate(ways) for way in range(len(own))]
        for order in (blocks, blocks[::-1]):
            for block in order:
                for _ in range(ceil(count / 2)):
                    if block is None:
                        together.append(self._once_together(rounds) / rounds)
                    else:
                        apart[block].append(self._once_alone(ways[block[0]][block[1]], rounds) / rounds)
        self._notes.clear()
        chosen = []
        for place, own in enumerate(ways):
            way = min(range(len(own)), key=lambda one, place=place: median(apart[place, one]))  # type: ignore[misc]
            chosen.append(apart[place, way])
            company = own[way].task.settings.company
            where = f" on {cores_text(company.cores)}" if company and company.cores else ""
            threads = count_noun(own[way].task.settings.threads, "thread")
            self._notes.append(f"{IN_SEQUENCE}, {own[way].task.case.op} has {threads}{where}")
        self._together = {MAKESPAN: together, SEQUENCE_TIME: [sum(one) for one in zip(*chosen, strict=True)]}

    def _once_together(self, rounds: int) -> float:
        """Return the seconds from the common start to the end of the last."""
        for tries in range(_LATE_TRIES):
            # Each calls once before, so that its threads are awake at the start.
            self._take_over(self._workers)
            lead = _LEAD + 2 * len(self._workers) * max(worker.per_call for worker in self._workers)
            begin = time.monotonic() + lead
            found = self._all(Stretch(begin, calls=rounds), lead)
            spent = max(one.ended for one in found) - begin
            late = max(one.begun for one in found) - begin
            if late <= _LATE * spent or tries == _LATE_TRIES - 1:
                return spent
        raise AssertionError

    def _once_alone(self, worker: _CompanyWorker, rounds: int) -> float:
        self._take_over([worker])
        lead = _LEAD + 2 * worker.per_call
        worker.order(Stretch(time.monotonic() + lead, calls=rounds), "measuring it in sequence")
        found = worker.stretched(lead)
        return found.ended - found.begun

    def _check_together(self) -> None:
        """Check the results of each while the others run in a loop."""
        for worker in self._workers:
            others = [one for one in self._workers if one is not worker]
            begin = time.monotonic() + _LEAD
            for one in others:
                one.order(Stretch(begin), "running beside a check")
            try:
                time.sleep(2 * _LEAD)
                worker.order(CheckResults(), "checking its results beside the others")
                worker.answer()
            finally:
                # Whatever comes next ends their loop; an exact call is the least.
                for one in others:
                    if one.works:
                        one.order(Stretch(0.0, calls=1), "running beside a check")
                        one.stretched()
                        one.stretched()

    # Records.

    def _records(self) -> Iterator[Record]:
        failed = [
            worker for worker in self._workers
            if worker.record is None or worker.record.status not in MEASURED
        ]  # fmt: skip
        for place, worker in enumerate(self._workers):
            record = worker.record
            assert record is not None
            if record.status not in MEASURED:
                yield replace(record, task=self._tasks[place])
                continue
            if place == 0:
                notes = tuple(dict.fromkeys((*record.notes, *self._notes)))
                record = replace(record, measurements=(*record.measurements, *self._makespans()), notes=notes)
            if not failed:
                yield from split_record(record)
                continue
            names = ", ".join(f"{one.task.case.op} ({_why(one)})" for one in failed)
            yield Record(
                self._tasks[place], "skipped", f"not measured together, because its companion failed: {names}",
                environment=record.environment, started=record.started,
            )  # fmt: skip
            yield from (one for one in split_record(record) if one.task != self._tasks[place])
        for worker in self._solo.values():
            if worker.record is not None:
                yield worker.record if worker.record.status not in MEASURED else _only_alone(worker.record)

    def _makespans(self) -> Iterator[Measurement]:
        company = self._tasks[0].settings.company
        assert company is not None
        for quantity, samples in self._together.items():
            yield make_measurement(quantity, company, samples, self._rule, calls=self._rounds)


def _why(worker: _CompanyWorker) -> str:
    return f"{worker.record.status}: {worker.record.reason}" if worker.record else "no record"


def _only_alone(record: Record) -> Record:
    """Return the record of a worker that was never beside others."""
    kept = tuple(one for one in record.measurements if one.quantity == CORUN_LATENCY)
    spoilt = [caution for one in kept for caution in one.cautions if caution.code == PREEMPTED]
    return replace(
        record, measurements=kept, status="disturbed" if spoilt else record.status,
        reason=spoilt[0].message if spoilt else record.reason,
    )  # fmt: skip
