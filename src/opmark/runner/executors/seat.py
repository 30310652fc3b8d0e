"""A seat: measures on leased devices of its node what a driver sends, and keeps the messages until the driver has them.

It runs in an actor, and starts workers as every parent of workers does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path, PurePath
from typing import Protocol

import msgspec
from msgspec.structs import asdict, replace

from opmark.errors import OpmarkError
from opmark.runner.clocks import ClockLocks
from opmark.runner.executors.leases import RENEW_EVERY
from opmark.runner.executors.node import why_unfit
from opmark.runner.plan import Plan, TaskGroup
from opmark.runner.profilers.profile_run import ProfileQueue, Profiling, profiler_runners
from opmark.runner.session import Retries, run_jobs, run_plan
from opmark.runner.supervisor import KeptWorkers, WorkerOptions, WorkerPool
from opmark.schema import Record
from opmark.schema.fleet import (
    CPU,
    NODE_FACT,
    EnvironmentFound,
    FileWritten,
    LeaseAnswer,
    NodeSaid,
    Owner,
    SeatAnswer,
    SeatMessage,
    SeatNews,
    SeatOptions,
    TaskBegun,
    TaskDone,
    Unit,
    UnitEnded,
    device_name,
    encode,
)
from opmark.scratch import ScratchFolder

LONGEST_SILENCE = 2.0
"""Seconds after which a seat answers though it has no news: so its driver knows that it lives."""
CHECK_EVERY = 60.0
"""Seconds after which a node is examined again, between two units."""
LARGEST_FILE = 256 << 20
"""Bytes of a profiler's file that are sent to the driver at most."""


class LeaseClient(Protocol):
    """The lease book, seen from a seat."""

    def acquire(self, devices: Sequence[str], owner: Owner) -> LeaseAnswer: ...

    def renew(self, token: str) -> LeaseAnswer: ...

    def release(self, token: str) -> None: ...


class Seat:
    def __init__(self, options: bytes, accelerators: Sequence[str], book: LeaseClient) -> None:
        """`accelerators`: the ids of those that the engine has given to this process."""
        self._options = msgspec.json.decode(options, type=SeatOptions)
        self._devices = [f"gpu:{i}" for i in accelerators] or [CPU]
        self._book = book
        self._token = ""
        self._idle = 0.0
        self._examined = 0.0
        self._messages: list[SeatMessage] = []
        self._sent = 0
        """Number of messages that the driver has for certain."""
        self._units: list[Unit] = []
        self._why_stop = ""
        self._closed = False
        self._parent = os.getppid()
        """The raylet: Ray itself ends the processes of one that was killed only after a quarter of a minute."""
        self._news = threading.Condition()
        # One thread for all units: a worker ends with the thread that has started it.
        self._runner = threading.Thread(target=self._run_units, daemon=True)
        self._renewer = threading.Thread(target=self._renew, daemon=True)

    def open(self) -> bytes:
        """Lease the devices and examine the node; say whether there is a seat now, and if not, why."""
        names = tuple(device_name(self._options.node, device) for device in self._devices)
        answer = self._book.acquire(names, self._options.owner)
        if answer.lease is None:
            held = answer.held_by
            return encode(SeatAnswer(names, answer.drained or (f"held by {held.owner.text}" if held else "")))
        self._token, self._idle = answer.lease.token, answer.idle
        if reason := self._why_unfit():
            self._book.release(self._token)
            return encode(SeatAnswer(names, reason))
        self._renewer.start()
        self._runner.start()
        return encode(SeatAnswer(names))

    def submit(self, unit: bytes) -> None:
        try:
            decoded = msgspec.json.decode(unit, type=Unit)
        except msgspec.MsgspecError as error:
            self._say(UnitEnded(0, f"it cannot read the unit: {error}", failed=True))
            return
        with self._news:
            self._units.append(decoded)
            self._news.notify_all()

    def news(self, after: int) -> bytes:
        """Return the messages after the first `after` ones, as soon as there is one, or none after a short while."""
        with self._news:
            del self._messages[: max(0, after - self._sent)]
            self._sent = max(self._sent, after)
            self._news.wait_for(lambda: self._messages, timeout=LONGEST_SILENCE)
            return encode(SeatNews(list(self._messages), self._sent + len(self._messages)))

    def stop(self, reason: str) -> None:
        """End the unit after the task that is being measured."""
        self._why_stop = reason

    def close(self) -> None:
        """End all work, and give the devices back once nothing runs on them."""
        with self._news:
            self._closed = True
            self._why_stop = self._why_stop or "the seat was closed"
            self._news.notify_all()
        if self._runner.is_alive():
            self._runner.join(timeout=self._options.timeout)
        self._book.release(self._token)

    def _say(self, message: SeatMessage) -> None:
        with self._news:
            self._messages.append(message)
            self._news.notify_all()

    def _renew(self) -> None:
        while not self._closed:
            time.sleep(RENEW_EVERY)
            if os.getppid() != self._parent and not self._why_stop:
                self._tell("its raylet has died: it finishes its task and takes no other")
                self.stop("its raylet has died")
            answer = self._book.renew(self._token)
            if answer.drained:
                self.stop(answer.drained)
            elif answer.lease is None and not self._closed:
                self.stop("the lease has expired: the node or the head of the cluster was too slow to renew it")

    def _why_unfit(self) -> str:
        if not self._options.must_be_fit or time.monotonic() - self._examined < CHECK_EVERY:
            return ""
        first = not self._examined
        reason = why_unfit(self._devices, self._idle if first else 0.0, self._options.owner)
        self._examined = time.monotonic()
        return reason

    def _run_units(self) -> None:
        options = self._options
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray's own choice; each task says how many threads it has
        if options.folder and Path(options.folder).is_dir():
            os.chdir(options.folder)
        with ExitStack() as stack:
            clocks = stack.enter_context(closing(ClockLocks(options.clocks, self._tell)))
            pool = stack.enter_context(closing(KeptWorkers() if options.keep_workers else WorkerPool()))
            scratch = stack.enter_context(ScratchFolder("profiles"))
            workers = WorkerOptions(
                options.timeout, options.compile_timeout, self._tell, lambda e: self._say(EnvironmentFound(e)), pool,
                clocks, lambda task: self._say(TaskBegun(task.id)), {NODE_FACT: options.node},
            )  # fmt: skip
            while unit := self._next_unit():
                reason, failed = self._why_stop or self._why_unfit(), False
                try:
                    if not reason:
                        self._run(unit, workers, Path(scratch))
                        reason = self._why_stop
                except OpmarkError as error:  # what the driver knows and this node does not, such as an operator
                    reason, failed = error.message, True
                except Exception as error:  # noqa: BLE001 - a defect costs this unit and is told, not the thread
                    reason, failed = f"a defect of opmark on this node: {type(error).__name__}: {error}", True
                self._say(UnitEnded(unit.number, reason, failed))

    def _tell(self, text: str) -> None:
        self._say(NodeSaid(text))

    def _next_unit(self) -> Unit | None:
        with self._news:
            self._news.wait_for(lambda: self._units or self._closed)
            return None if self._closed else self._units.pop(0)

    def _run(self, unit: Unit, workers: WorkerOptions, scratch: Path) -> None:
        if unit.jobs:
            jobs = [
                (TaskGroup(job.backend, job.threads, job.ranks, list(job.tasks)), job.side) for job in unit.jobs
            ]  # fmt: skip
            with closing(run_jobs(jobs, workers, lambda position: None)) as pairs:
                for position, record in pairs:
                    self._say(TaskDone(record, position))
                    if self._why_stop:
                        return
            return
        retries = Retries(self._options.retries, self._options.fewer_threads)
        with closing(run_plan(Plan(unit.tasks, ()), workers, retries=retries, fresh=False)) as records:
            if not self._options.profilers:
                for record in records:
                    self._say(TaskDone(record))
                    if self._why_stop:
                        return
                return
            self._run_with_profilers(unit, records, scratch)

    def _run_with_profilers(self, unit: Unit, records: Iterator[Record], scratch: Path) -> None:
        """Pass records on once the profilers have looked at them, with the files that these have written."""
        sent: set[Path] = set()
        chosen = [Profiling(**{**asdict(one), "folder": str(scratch)}) for one in self._options.profilers]
        target = self._options.profilers[0].folder

        def pass_on(record: Record) -> None:
            for path in sorted(scratch.iterdir()):
                if path.is_file() and path not in sent and path.stat().st_size <= LARGEST_FILE:
                    sent.add(path)
                    self._say(FileWritten(path.name, path.read_bytes()))
            moved = [replace(one, file=str(PurePath(target) / Path(one.file).name)) for one in record.profiles]
            self._say(TaskDone(replace(record, profiles=tuple(moved))))

        runners = profiler_runners(chosen, f"{self._options.run}-{self._options.node}-{unit.number}", self._tell)
        queue = ProfileQueue(runners, pass_on)
        try:
            for record in records:
                queue.add(record)
                if self._why_stop:
                    return
            queue.finish()
        finally:
            queue.abandon()
