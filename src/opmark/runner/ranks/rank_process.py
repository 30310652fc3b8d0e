"""The processes of the ranks, as their parent sees them: on this host, or children of the opmark of another rank."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import NamedTuple, Protocol

import msgspec
import psutil

from opmark.plugin import BackendInfo
from opmark.runner.ranks.connection import (
    DOING,
    INTERFACE,
    ConnectionLost,
    Death,
    End,
    ForwardLine,
    Greeting,
    RankConnection,
    Start,
    State,
    StateRequest,
    Stop,
    WorkerLine,
    from_agent,
    with_interface,
)
from opmark.runner.worker_process import WorkerDied, WorkerProcess

_STATE_TIMEOUT = 2.0


class RankLine(NamedTuple):
    """A line of a rank; None when there will be no more."""

    rank: int
    start: int
    """Which of the rank's processes said it: lines of an earlier one may come late."""
    line: bytes | None


Inbox = queue.Queue[RankLine]
"""Takes the lines of all ranks of a group."""


class RankProcess(Protocol):
    rank: int
    where: str
    """How the rank is named to people: `rank 2`, `rank 2 on node-b`."""

    @property
    def gone(self) -> str:
        """Why the rank can never be started again; empty while it can."""

    def start(self, info: BackendInfo, threads: int, environ: Mapping[str, str], number: int) -> None:
        """Start a new process, whose lines go to the inbox. `number` counts the starts."""

    def send(self, line: bytes) -> None:
        """Send a line to the process. Raise WorkerDied where it is not there any more."""

    def died(self, doing: str) -> WorkerDied | None:
        """How the process died, if it has."""

    def state(self) -> str:
        """The state of the process as seen from outside: `stopped`, or empty where it says nothing."""

    def stop(self) -> None:
        """End the process at once."""


class LocalRank:
    """A rank whose process is a child of this one."""

    gone = ""

    def __init__(self, rank: int, inbox: Inbox) -> None:
        self.rank = rank
        self.where = f"rank {rank}"
        self._inbox = inbox
        self._process: WorkerProcess | None = None

    def start(self, info: BackendInfo, threads: int, environ: Mapping[str, str], number: int) -> None:
        def deliver(line: bytes | None) -> None:
            self._inbox.put(RankLine(self.rank, number, line))

        self._process = WorkerProcess(info, threads, environ, rank=True, deliver=deliver)

    def send(self, line: bytes) -> None:
        assert self._process is not None
        self._process.send(line)

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


class RankZero(LocalRank):
    """Rank 0, whose process is a child of this one, in a group that others join from elsewhere."""

    def __init__(self, host: str, address: str, inbox: Inbox) -> None:
        """`address`: the one by which the others reach this host."""
        super().__init__(0, inbox)
        self.where = f"rank 0 on {host}"
        self._address = address

    def start(self, info: BackendInfo, threads: int, environ: Mapping[str, str], number: int) -> None:
        super().start(info, threads, with_interface(environ, self._address), number)


class AgentConnection:
    """The connection to the agent of one rank, which has one worker at a time. It outlasts the groups that use it."""

    def __init__(self, connection: RankConnection, who: Greeting) -> None:
        self.who = who
        self.where = f"rank {who.rank} on {who.host}"
        self.connection = connection
        self.lost = ""
        """Why it is gone, as in `rank 1 on node-b: its opmark closed the connection`; empty while it is there."""
        self._numbers = count(1)
        self._rank: RemoteRank | None = None
        self._changing = threading.Lock()

    def listen(self) -> None:
        threading.Thread(target=self._receive, daemon=True).start()

    def start(self, rank: RemoteRank, backend: str, threads: int, environ: Mapping[str, str]) -> None:
        process = next(self._numbers)
        with self._changing:
            self._rank = rank
            rank.process = process
        self.send(Start(process, backend, threads, dict(environ)))

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Nothing is raised: `lost` says whether the connection is gone."""
        try:
            self.connection.send(message)
        except ConnectionLost as loss:
            self._lose(loss)

    def end(self, code: int, message: str) -> None:
        with suppress(ConnectionLost):  # an agent that is gone cannot be told
            self.connection.send(End(code, message))

    def _receive(self) -> None:
        try:
            while True:
                message = self.connection.receive(from_agent)
                with self._changing:
                    if self._rank and self._rank.process == message.process:
                        self._rank.take(message)
        except ConnectionLost as loss:
            self._lose(loss)

    def _lose(self, loss: ConnectionLost) -> None:
        self.lost = self.lost or f"its opmark {loss.reason}"


class RemoteRank:
    """A rank whose process is a child of another opmark, mostly on another host."""

    def __init__(self, agent: AgentConnection, inbox: Inbox, interface: str | None = None) -> None:
        """`interface`: the network interface to use, where the rank's own connection to rank 0 does not tell."""
        self.rank = agent.who.rank
        self.where = agent.where
        self.process = 0
        """The number of this rank's worker process among those of its agent; 0 for none."""
        self._agent = agent
        self._inbox = inbox
        self._environ = {INTERFACE: interface} if interface else {}
        self._number = 0
        self._death: Death | None = None
        self._states: queue.Queue[str] = queue.Queue()

    @property
    def gone(self) -> str:
        return f"{self.where}: {self._agent.lost}" if self._agent.lost else ""

    def start(self, info: BackendInfo, threads: int, environ: Mapping[str, str], number: int) -> None:
        self._number, self._death = number, None
        self._agent.start(self, info.name, threads, {**environ, **self._environ})

    def send(self, line: bytes) -> None:
        self._agent.send(ForwardLine(self.process, line.decode()))
        death = self.died("waiting for a task")
        if death:
            raise WorkerDied(death.status, death.reason, illegal=death.illegal, idle=not self.gone)

    def died(self, doing: str) -> WorkerDied | None:
        if self._agent.lost:
            return WorkerDied("error", f"{self._agent.lost}, while {doing}")
        if self._death is None:
            return None
        return WorkerDied(self._death.status, self._death.reason.replace(DOING, doing), illegal=self._death.illegal)

    def state(self) -> str:
        if self._agent.lost or not self.process:
            return ""
        self._states = queue.Queue()  # an answer to an earlier question may have come too late
        self._agent.send(StateRequest(self.process))
        try:
            return self._states.get(timeout=_STATE_TIMEOUT)
        except queue.Empty:
            return "not to be reached"

    def stop(self) -> None:
        if self.process:
            self._agent.send(Stop(self.process))
        self.process = 0

    def take(self, message: WorkerLine | Death | State) -> None:
        """Take a message of the agent about this rank's process."""
        if isinstance(message, WorkerLine):
            line = None if message.line is None else message.line.encode()
            self._inbox.put(RankLine(self.rank, self._number, line))
        elif isinstance(message, Death):
            self._death = message
        else:
            self._states.put(message.state)
