"""Keeps a worker alive across tasks: replaces one that died, and finds a limit where an instruction is not allowed."""

from __future__ import annotations

import time
from collections.abc import Callable

from opmark.errors import UserError
from opmark.interfaces import BackendInfo
from opmark.runner import early, instructions
from opmark.runner.process import WorkerDied, WorkerProcess, lost
from opmark.runner.sides import Side
from opmark.runner.worker import Hello
from opmark.schema import Environment, Record, Task

START_TIMEOUT = 120.0
DEFAULT_COMPILE_TIMEOUT = 300.0

Say = Callable[[str], None]
Keep = Callable[[Environment], None]
"""Is given each environment before the records that name it."""


class Supervisor:
    """The worker of one backend with one number of threads."""

    def __init__(
        self,
        info: BackendInfo,
        threads: int,
        timeout: float,
        say: Say,
        keep: Keep,
        compile_timeout: float = DEFAULT_COMPILE_TIMEOUT,
        side: Side | None = None,
    ) -> None:
        self._info = info
        self._side = side
        self._threads = threads
        self._timeout = timeout
        self._compile_timeout = compile_timeout
        self._say = say
        self._keep = keep
        self._limit = instructions.recall(info.name) if info.device == "cpu" else None
        self._worker: WorkerProcess | None = None
        self._hello: Hello | None = None
        self._environment = ""
        if self._limit:
            self._say_limit()

    def start(self) -> Hello:
        """Its hello; WorkerDied if the framework cannot even be imported."""
        if self._worker is None or self._hello is None:
            self._environment = ""
            try:
                limit = instructions.environ(self._limit)
                self._worker = early.worker(self._info, self._threads, limit, self._side)
                self._hello = self._worker.hello(START_TIMEOUT)
            except UserError as error:  # its interpreter is broken, or cannot be given what a worker needs
                raise WorkerDied("error", error.message) from None
            except WorkerDied:
                self.close()
                raise
            if not self._hello.unavailable:
                self._environment = self._hello.environment.id
                self._keep(self._hello.environment)
        return self._hello

    def run(self, task: Task) -> Record:
        """A record, whatever happens."""
        since = time.perf_counter()
        try:
            return self._handed_over(task)
        except WorkerDied as death:
            record = lost(task, death, time.perf_counter() - since, self._environment)
            retry = death.illegal and self._info.device == "cpu"
            return (self._retry_with_limit(task) or record) if retry else record

    def close(self) -> None:
        if self._worker:
            self._worker.close()
        self._worker = self._hello = None

    def _handed_over(self, task: Task) -> Record:
        """A worker that died while it had nothing to do, as others measured, is replaced, once: no task is to blame."""
        try:
            return self._attempt(task)
        except WorkerDied as death:
            if not death.idle:
                raise
        return self._attempt(task)

    def _attempt(self, task: Task) -> Record:
        self.start()
        assert self._worker is not None
        try:
            answer = self._worker.run(task, self._timeout, self._compile_timeout)
        except WorkerDied:
            self.close()  # the next task gets a new one
            raise
        if not answer.usable:
            self.close()
        return answer.record

    def _retry_with_limit(self, task: Task) -> Record | None:
        """The record under the mildest limit with which the task survives; None if it survives none."""
        before = self._limit
        for limit in instructions.stricter_than(before):
            self._limit = limit
            try:
                record = self._attempt(task)
            except WorkerDied as death:
                if death.illegal:
                    continue
                break
            instructions.remember(self._info.name, limit)
            self._say_limit()
            return record
        self._limit = before
        return None

    def _say_limit(self) -> None:
        self._say(
            f"this machine traps instructions that its processor advertises: {self._info.name} runs with "
            f"{instructions.VARIABLE}={self._limit} (`opmark doctor` looks again)"
        )
