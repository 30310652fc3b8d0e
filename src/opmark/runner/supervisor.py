"""Supervises one worker across tasks: starts it, replaces it when it dies, and limits the instructions that it uses."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from opmark.errors import UserError
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend as find_backend
from opmark.runner import instruction_set
from opmark.runner.clocks import FACT as CLOCKS
from opmark.runner.clocks import ClockLocks
from opmark.runner.guests.placement import why_missing
from opmark.runner.worker_process import WorkerDied, WorkerProcess, record_of_death
from opmark.schema import Environment, Record, Resources, Task
from opmark.schema.messages import Hello, Side
from opmark.schema.options import DEFAULT_TIMEOUT
from opmark.schema.record import utc_now

if TYPE_CHECKING:
    from opmark.runner.plan import TaskGroup

LONGEST_START = 120.0
SHORTEST_START = 30.0
"""Bounds for the seconds that a start may take: importing a framework takes its time, however short the tasks are."""
STARTS = 2
"""Starts in a row that may fail."""
DEFAULT_COMPILE_TIMEOUT = 300.0

Say = Callable[[str], None]
Keep = Callable[[Environment], None]
"""Is given each environment before the records that name it."""
T = TypeVar("T")


class WorkerPool:
    """Workers that are started while the parent still plans the run: frameworks are slow to import."""

    keeps = False
    """Whether a worker that has done its tasks waits for others."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int, str | None, Resources | None], WorkerProcess] = {}

    def prestart(self, backend: str, threads: int) -> None:
        """Start a worker now. A broken interpreter is only reported when the worker is needed."""
        info = find_backend(backend)
        limit = instruction_set.limit_for(info)
        with suppress(UserError, OSError):
            if not why_missing(info):
                self._waiting[info.name, threads, limit, None] = WorkerProcess(
                    info, threads, instruction_set.environ(limit)
                )

    def take(
        self,
        info: BackendInfo,
        threads: int,
        limit: str | None,
        side: Side | None,
        resources: Resources | None = None,
    ) -> WorkerProcess:
        """Return the waiting worker that was started for exactly this, or a new one."""
        waiting = self._waiting.pop((info.name, threads, limit, resources), None) if side is None else None
        return waiting or WorkerProcess(info, threads, instruction_set.environ(limit), side, resources=resources)

    def give_back(
        self,
        worker: WorkerProcess,
        info: BackendInfo,
        threads: int,
        limit: str | None,
        resources: Resources | None = None,
    ) -> None:
        """Take a worker that has done its tasks: end it, or keep it where the pool does."""
        key = (info.name, threads, limit, resources)
        if not self.keeps or worker.died("waiting for a task") or key in self._waiting:
            worker.close()
        else:
            self._waiting[key] = worker

    def end_unneeded(self, groups: Iterable[TaskGroup]) -> None:
        """End the workers that none of these groups will take: they would use a device beside what is measured."""
        needed = {(group.backend, group.threads) for group in groups if not group.ranks}
        for key in [key for key in self._waiting if key[:2] not in needed]:
            self._waiting.pop(key).close()

    def close(self) -> None:
        """End the workers that nobody has taken."""
        while self._waiting:
            self._waiting.popitem()[1].close()


class KeptWorkers(WorkerPool):
    """Workers that go on with further tasks: so one process has all cases of a round, though they come in parts."""

    keeps = True

    @property
    def count(self) -> int:
        """Number of idle workers."""
        return len(self._waiting)


def _ignore(_: object) -> None:
    pass


@dataclass(frozen=True)
class WorkerOptions:
    """How the workers of a run are supervised, and who is told about them."""

    timeout: float
    """Seconds that a task may take."""
    compile_timeout: float = DEFAULT_COMPILE_TIMEOUT
    say: Say = _ignore
    keep: Keep = _ignore
    pool: WorkerPool = field(default_factory=WorkerPool)
    clocks: ClockLocks = field(default_factory=ClockLocks)
    begin: Callable[[Task], None] = _ignore
    """Is given each task before it is tried."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts that belong to every environment, which workers do not know."""

    def complete_hello(self, hello: Hello) -> Hello:
        """Lock the clocks of a worker's device; return its hello with what workers do not know of their environment."""
        locked = self.clocks.lock(hello)
        if not self.facts or locked.unavailable:
            return locked
        return Hello(None, Environment.of({**locked.environment.facts, **self.facts}))

    @property
    def start_timeout(self) -> float:
        """Return the seconds that a worker may take to start: as long as a task where the user gave a shorter time-out
        than the default, within bounds."""
        return LONGEST_START if self.timeout >= DEFAULT_TIMEOUT else max(SHORTEST_START, self.timeout)


class StartAttempts:
    """Starts a worker, or all ranks of a group, once more where a start fails. When that fails too, the task that
    needed it is charged with the failure; those after it count as untried."""

    def __init__(self, name: str) -> None:
        """`name`: what is started, as in `torch-cpu cannot start`."""
        self.charged = False
        self._name = name
        self._failure: WorkerDied | None = None

    def attempt(self, start: Callable[[], T]) -> T:
        """Return what `start` returns. Raise WorkerDied where it has failed too often, from then on without a try."""
        if self._failure:
            raise self._failure
        for left in reversed(range(STARTS)):
            try:
                return start()
            except WorkerDied as death:
                if left:
                    continue
                reason = f"{self._name} cannot start: {death.reason}"
                self._failure = WorkerDied(death.status, reason, illegal=death.illegal, starting=True)
        assert self._failure is not None
        raise self._failure

    def charge(self, record: Record) -> Record:
        """Return the record of a task for which nothing could be started; it is untried if another one was charged."""
        untried, self.charged = self.charged, True
        return replace(record, untried=untried)


class Supervisor:
    """Runs the tasks of one backend with one number of threads in a worker process."""

    def __init__(
        self,
        info: BackendInfo,
        threads: int,
        options: WorkerOptions,
        side: Side | None = None,
        resources: Resources | None = None,
    ) -> None:
        self._info = info
        self._threads = threads
        self._resources = resources
        self._own_clocks: ClockLocks | None = None
        if resources and resources.clock:
            self._own_clocks = ClockLocks(f"lock={resources.clock}", options.say)
            options = dataclasses.replace(options, clocks=self._own_clocks)
        self._options = options
        self._side = side
        self._limit = instruction_set.limit_for(info)
        self._worker: WorkerProcess | None = None
        self._hello: Hello | None = None
        self._environment = ""
        self._starts = StartAttempts(info.name)
        if self._limit:
            self._say_limit()

    def launch(self) -> None:
        """Start the process without waiting for its framework. Raise WorkerDied if that is not possible."""
        if self._worker is None:
            self._environment = ""
            try:
                self._worker = self._options.pool.take(
                    self._info, self._threads, self._limit, self._side, self._resources
                )
            except UserError as error:  # its interpreter is broken, or cannot be given what a worker needs
                raise WorkerDied("error", error.message) from None
            except OSError as error:  # so many processes or open files are not allowed
                raise WorkerDied("error", f"its process cannot be started: {error.strerror}") from None

    def start(self) -> Hello:
        """Return the hello of a worker ready for tasks. Raise WorkerDied if its framework cannot be imported."""
        return self._hello or self._starts.attempt(self._start_once)

    def run(self, task: Task) -> Record:
        """Run a task and return its record, whatever becomes of the worker."""
        self._options.begin(task)
        since = time.perf_counter()
        try:
            try:
                return self._attempt(task)
            except WorkerDied as death:
                if not death.idle:
                    raise
            return self._attempt(task)  # it died while others measured: a new worker gets the task, once
        except WorkerDied as death:
            record = record_of_death(task, death, time.perf_counter() - since, self._environment)
            if death.illegal and self._info.device == "cpu" and not self._starts.charged:
                retried = self._retry_with_limit(task)
                if retried:
                    return retried
            return self._starts.charge(record) if death.starting else record

    @property
    def process(self) -> WorkerProcess:
        """The process of a worker that has started, for whoever tells it more than to run a task."""
        assert self._worker is not None
        return self._worker

    @property
    def environment(self) -> str:
        """The id of the environment of the worker, once it has started."""
        return self._environment

    def close(self) -> None:
        if self._worker:
            self._worker.close()
        self._worker = self._hello = None
        if self._own_clocks:
            self._own_clocks.close()

    def finish(self) -> None:
        """End the work of a worker that has done all of its tasks; the pool may keep its process for further ones."""
        if self._worker and self._hello and not self._hello.unavailable and self._side is None:
            self._options.pool.give_back(self._worker, self._info, self._threads, self._limit, self._resources)
            self._worker = self._hello = None
        self.close()

    def _start_once(self) -> Hello:
        self.launch()
        assert self._worker is not None
        try:
            hello = self._options.complete_hello(self._worker.hello(self._options.start_timeout))
        except WorkerDied:
            self.close()
            raise
        if self._own_clocks and not hello.unavailable:
            locked = str(hello.environment.facts.get(CLOCKS, ""))
            if not locked.startswith("locked at"):  # a number at another clock would mislead
                self.close()
                raise WorkerDied(
                    "error", f"the clock cannot be {self._resources and self._resources.clock} MHz: {locked}"
                )
        self._hello = hello
        if not hello.unavailable:
            self._environment = hello.environment.id
            self._options.keep(hello.environment)
        return hello

    def _attempt(self, task: Task) -> Record:
        hello = self.start()
        if hello.unavailable:  # its device was there when the run began
            return Record(task, "skipped", hello.unavailable, started=utc_now())
        assert self._worker is not None
        try:
            reply = self._worker.run(task, self._options.timeout, self._options.compile_timeout)
        except WorkerDied:
            self.close()  # the next task gets a new one
            raise
        if not reply.usable:
            self.close()
        # The environment as it was stored: what was locked is a fact of it that the worker does not know.
        return self._options.clocks.check(replace(reply.record, environment=self._environment), hello)

    def _retry_with_limit(self, task: Task) -> Record | None:
        """Return the record under the mildest limit with which the task survives; None if it survives none."""
        before = self._limit, self._starts
        for limit in instruction_set.stricter_than(self._limit):
            self._limit, self._starts = limit, StartAttempts(self._info.name)
            try:
                record = self._attempt(task)
            except WorkerDied as death:
                if death.illegal:
                    continue
                break
            instruction_set.remember(self._info.name, limit)
            self._say_limit()
            return record
        self._limit, self._starts = before
        return None

    def _say_limit(self) -> None:
        self._options.say(
            f"this machine traps instructions that its processor advertises: {self._info.name} runs with "
            f"{instruction_set.VARIABLE}={self._limit} (`opmark doctor` looks again)"
        )
