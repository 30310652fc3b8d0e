"""Runs a plan from its first worker to its last record. Every record is stored as soon as it is made."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path

import psutil
from msgspec.structs import replace as replace_fields

from opmark.errors import UserError
from opmark.plugin.registry import backend as find_backend
from opmark.runner.git import revision_now
from opmark.runner.plan import Plan, TaskGroup
from opmark.runner.ranks.group import RankGroup
from opmark.runner.ranks.launcher import RankLauncher
from opmark.runner.supervisor import Say, Supervisor, WorkerOptions
from opmark.runner.worker_process import WorkerDied
from opmark.schema import Record, Run, Task
from opmark.schema.messages import Hello, Side
from opmark.schema.options import DEFAULT_RETRIES
from opmark.schema.record import utc_now
from opmark.store.location import without_secrets
from opmark.store.protocol import Store
from opmark.units import count_noun
from opmark.version import VERSION

_FEWER_RANKS = "--ranks says how many processes take part; `opmark list backends` says what can run here"
_WORKER_MEMORY = 1 << 30
"""Bytes that an idle worker may hold, its framework imported."""
_PAUSES = (1.0, 3.0, 10.0)
"""Seconds to wait before each further try of what was disturbed; the last is for all that follow."""
_OWN_PROGRAMS = ("opmark", "opmark.exe", "__main__.py")
"""Names of the program when it is opmark that was called."""


@dataclass(frozen=True)
class Retries:
    """How often tasks that other work disturbed are measured again when all others are done."""

    most: int = DEFAULT_RETRIES
    fewer_threads: bool = False
    """Whether a task that stays disturbed is measured once more with half of its threads, beside its own record."""
    sleep: Callable[[float], None] = time.sleep


def run_plan(
    plan: Plan,
    options: WorkerOptions,
    launcher: RankLauncher | None = None,
    retries: Retries | None = None,
    *,
    fresh: bool = True,
) -> Generator[Record, None, None]:
    """Yield the records of a plan as they come; then those of disturbed tasks, which are measured again, unless
    `retries` says that they are not; skipped tasks come last.

    Raise UserError where no backend can run at all: that is a mistake of the user. For a run that has records already,
    which is not `fresh`, the tasks are skipped instead.
    """
    options = replace(options, say=_SayOnce(options.say))
    retries = retries or Retries()
    unavailable: dict[tuple[str, str], list[Task]] = {}
    disturbed: list[Record] = []
    for group, worker, hello in _start_rounds(plan, options, launcher):
        if isinstance(hello, Hello) and hello.unavailable:
            unavailable.setdefault((group.backend, hello.unavailable), []).extend(group.tasks)
            continue
        for record in run_group(group, worker, hello):
            if record.status == "disturbed" and (retries.most or retries.fewer_threads):
                disturbed.append(record)
            else:
                yield record
    yield from _measure_again(disturbed, retries, options, launcher)
    if fresh and unavailable and sum(map(len, unavailable.values())) == len(plan.tasks):
        listed = "; ".join(f"backend `{name}` cannot run here: {reason}" for name, reason in unavailable)
        ranks = any(group.ranks for group in plan.groups())
        raise UserError(listed, _FEWER_RANKS if ranks else "`opmark list backends` says what can")
    for (_, reason), tasks in unavailable.items():
        for task in tasks:
            yield Record(task, "skipped", reason, started=utc_now())
    yield from plan.skipped


def _start_rounds(
    plan: Plan, options: WorkerOptions, launcher: RankLauncher | None
) -> Iterator[tuple[TaskGroup, Supervisor | RankGroup, Hello | WorkerDied]]:
    """Yield the workers of all rounds. Every second round runs backwards, so that an even drift hits all backends
    alike."""
    rounds = groupby(plan.groups(), key=lambda group: group.tasks[0].settings.process)
    for number, (_, groups) in enumerate(rounds):
        ordered = list(groups)[:: -1 if number % 2 else 1]
        yield from start_workers([(group, None) for group in ordered], options, launcher)


def _measure_again(
    disturbed: Sequence[Record], retries: Retries, options: WorkerOptions, launcher: RankLauncher | None
) -> Iterator[Record]:
    """Yield one record for each disturbed task: the first that is not disturbed, or else the last, with the time of the
    first try, so that it keeps its place in tables. A run that is interrupted before that has no record of the task, so
    that resuming it measures the task."""
    left = list(disturbed)
    started = {record.task.id: record.started for record in disturbed}
    for attempt in range(retries.most):
        if not left:
            return
        pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
        tasks = count_noun(len(left), "task")
        options.say(f"other work disturbed {tasks}: measured again in {pause:g} s, try {attempt + 1} of {retries.most}")
        retries.sleep(pause)
        tried, left = left, []
        for group, worker, hello in _start_rounds(_plan_of(record.task for record in tried), options, launcher):
            for found in run_group(group, worker, hello):
                record = replace_fields(found, started=started[found.task.id])
                if record.status == "disturbed":
                    left.append(record)
                else:
                    yield record
    for record in left:
        tries = f"; so in {count_noun(retries.most + 1, 'try', 'tries')}"
        yield replace_fields(record, reason=record.reason + tries)
    if retries.fewer_threads:
        fewer = [_with_half_the_threads(record.task) for record in left if record.task.settings.threads > 1]
        for group, worker, hello in _start_rounds(_plan_of(fewer), options, launcher):
            yield from run_group(group, worker, hello)


def _plan_of(tasks: Iterable[Task]) -> Plan:
    return Plan(tuple(tasks), ())


def _with_half_the_threads(task: Task) -> Task:
    return replace_fields(task, settings=replace_fields(task.settings, threads=task.settings.threads // 2))


def run_group(group: TaskGroup, worker: Supervisor | RankGroup, hello: Hello | WorkerDied) -> Iterator[Record]:
    """Yield one record for each task of a group, whatever becomes of its worker."""
    for task in group.tasks:
        if isinstance(hello, Hello) and hello.unavailable:
            yield Record(task, "skipped", hello.unavailable, started=utc_now())
        else:
            yield worker.run(task)


Job = tuple[TaskGroup, Side | None]
"""Tasks for one worker and, where two sides are compared, the side that it works for."""


def start_workers(
    jobs: Sequence[Job], options: WorkerOptions, launcher: RankLauncher | None = None
) -> Iterator[tuple[TaskGroup, Supervisor | RankGroup, Hello | WorkerDied]]:
    """Yield the workers of one round, each with its hello; a worker ends when the next one is asked for.

    Workers of one round on the CPU start together, and all of them have started before the first one measures:
    importing frameworks takes seconds and would disturb it. Workers of a device start one at a time.
    """
    launcher = launcher or RankLauncher()
    workers: list[Supervisor | RankGroup] = []
    together: list[Supervisor] = []
    hellos: dict[Supervisor | RankGroup, Hello | WorkerDied] = {}
    with ExitStack() as stack:
        for group, side in jobs:
            info = find_backend(group.backend)
            if group.ranks:
                workers.append(launcher.group(info, group.threads, group.ranks, options))
            else:
                supervisor = Supervisor(info, group.threads, options, side, group.resources)
                workers.append(supervisor)
                if info.device == "cpu":
                    together.append(supervisor)
            stack.callback(workers[-1].close)
        if 1 < len(together) <= psutil.virtual_memory().available / _WORKER_MEMORY:
            for supervisor in together:
                with suppress(WorkerDied):  # `_start` tries again
                    supervisor.launch()
            hellos |= {supervisor: _start(supervisor) for supervisor in together}
        for (group, _), worker in zip(jobs, workers, strict=True):
            yield group, worker, hellos[worker] if worker in hellos else _start(worker)
            worker.finish()


def run_jobs(
    jobs: Sequence[Job], options: WorkerOptions, announce: Callable[[int], None]
) -> Generator[tuple[int, Record], None, None]:
    """Do jobs in their order. Yield the position of each record's job with the record; `announce` is given the position
    of a job that is about to be measured."""
    for position, (group, worker, hello) in enumerate(start_workers(jobs, options)):
        announce(position)
        for record in run_group(group, worker, hello):
            yield position, record


def _start(worker: Supervisor | RankGroup) -> Hello | WorkerDied:
    try:
        return worker.start()
    except WorkerDied as death:
        return death


class _SayOnce:
    """Passes each message on once, however many workers have it to say."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._messages: set[str] = set()

    def __call__(self, message: str) -> None:
        if message not in self._messages:
            self._messages.add(message)
            self._say(message)


class RunRecorder:
    """Stores the records of one run. The run itself is stored with its first record: a mistake leaves no empty run."""

    def __init__(
        self, store: Store, run: Run, on_record: Callable[[Record], None] | None = None, *, begun: bool = False
    ) -> None:
        self.run = run
        self.records: list[Record] = []
        self.begun = begun
        self._store = store
        self._on_record = on_record

    def add(self, *records: Record) -> None:
        """Store records in one transaction, then pass them on. A task that was never tried is not stored: resuming the
        run does it."""
        if tried := [record for record in records if not record.untried]:
            if not self.begun:
                self._store.begin(self.run)
                self.begun = True
            self._store.extend(self.run.id, tried)
        self.records += records
        if self._on_record:
            for record in records:
                self._on_record(record)


def new_run(plan: Plan, label: str) -> Run:
    now = datetime.now(timezone.utc)
    return Run(
        id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}",
        started=now.isoformat(timespec="milliseconds"),
        plan=plan.id,
        tasks=len(plan.tasks) + len(plan.skipped),
        label=label,
        command=_format_command(sys.argv),
        version=VERSION,
        revision=revision_now(),
    )


def _format_command(argv: Sequence[str]) -> str:
    """The command as it was typed, without secrets and without the place where opmark is installed."""
    program = "opmark" if Path(argv[0]).name in _OWN_PROGRAMS else argv[0]
    return shlex.join(without_secrets([program, *argv[1:]])).encode(errors="backslashreplace").decode()


def run_to_resume(store: Store, plan: str, label: str) -> Run:
    """The newest run of the plan with this id, and of the label if one is given."""
    for run in store.runs():
        if run.plan == plan and (not label or run.label == label):
            return run
    raise UserError(
        "no stored run has this plan" + (f" and the label `{label}`" if label else ""),
        "--resume needs the same operators, parameters, backends and effort as the run that was interrupted",
    )


def begin_or_resume(
    store: Store,
    run: Run,
    *,
    resume: bool,
    label: str,
    say: Say,
    on_record: Callable[[Record], None] | None = None,
) -> tuple[RunRecorder, dict[str, Record]]:
    """Return the recorder of a run that chooses its tasks as it goes, and the records that it has, by task.

    The run is new; or, to resume, the interrupted one of the same plan, and of the label if one is given.
    """
    if not resume:
        return RunRecorder(store, run, on_record), {}
    run = run_to_resume(store, run.plan, label)
    done = {record.task.id: record for record in store.records(run.id)}
    if done:
        say(f"{count_noun(len(done), 'record')} of run {run.id} measured already")
    return RunRecorder(store, run, on_record, begun=True), done
