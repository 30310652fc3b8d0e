"""The parent's end of the process of one rank."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import psutil

from opmark.interfaces import BackendInfo
from opmark.runner.process import WorkerDied, WorkerProcess

MODULE = "opmark.runner.ranks.worker"


class Heard(NamedTuple):
    """A line of a rank; None when there will be no more."""

    rank: int
    start: int
    """Which of its processes said it: words of an earlier one may come late."""
    line: bytes | None


Inbox = queue.Queue[Heard]


class Member(Protocol):
    rank: int
    where: str
    """As it is named to people: `rank 2`, `rank 2 on node-b`."""

    @property
    def gone(self) -> str:
        """Why it can never be started again; empty while it can."""

    def start(self, info: BackendInfo, threads: int, environ: Mapping[str, str], number: int) -> None:
        """A new process; what it says goes to the inbox. `number` counts the starts."""

    def tell(self, line: bytes) -> None:
        """WorkerDied where nobody is there to hear it."""

    def died(self, doing: str) -> WorkerDied | None:
        """How its process died, if it has."""

    def state(self) -> str:
        """What can be seen of it from outside, where that says anything: `stopped`."""

    def stop(self) -> None:
        """End its process at once."""


class LocalMember:
    """A process on this host."""

    gone = ""

    def __init__(self, rank: int, inbox: Inbox) -> None:
        self.rank = rank
        self.where = f"rank {rank}"
        self._inbox = inbox
        self._process: WorkerProcess | None = None

    def start(self, info: BackendInfo, threads: int, environ: Mapping[str, str], number: int) -> None:
        def deliver(line: bytes | None) -> None:
            self._inbox.put(Heard(self.rank, number, line))

        self._process = WorkerProcess(info, threads, environ, module=MODULE, deliver=deliver)

    def tell(self, line: bytes) -> None:
        assert self._process is not None
        self._process.tell(line)

    def died(self, doing: str) -> WorkerDied | None:
        return self._process.died(doing) if self._process else None

    def state(self) -> str:
        if self._process is None:
            return ""
        try:
            status = psutil.Process(self._process.pid).status()
        except psutil.NoSuchProcess:
            return ""
        return "stopped" if status == psutil.STATUS_STOPPED else ""

    def stop(self) -> None:
        if self._process:
            self._process.close()
        self._process = None
