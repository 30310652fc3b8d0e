"""The opmark of a rank above 0: it has a worker, and does what the opmark of rank 0 says until that is over or gone."""

from __future__ import annotations

import platform
import queue
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from opmark.errors import UserError
from opmark.hardware.host import host
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend as find_backend
from opmark.runner import instruction_set
from opmark.runner.clocks import ClockLocks
from opmark.runner.guests.placement import why_missing
from opmark.runner.ranks.authentication import SAME_FOR_ALL, NotAuthenticated, prove_to_rank_zero, read_secret
from opmark.runner.ranks.connection import (
    DOING,
    ConnectionLost,
    Death,
    End,
    ForwardLine,
    FromRankZero,
    Greeting,
    RankConnection,
    Refusal,
    Start,
    State,
    StateRequest,
    Stop,
    WorkerLine,
    connect,
    from_rank_zero,
    reception,
    with_interface,
)
from opmark.runner.ranks.job import PORT, JobRank
from opmark.runner.ranks.launcher import ARRIVAL_TIMEOUT, command_id, takes_ranks
from opmark.runner.ranks.rank_process import LocalRank, RankLine
from opmark.runner.supervisor import Say
from opmark.runner.worker_process import WorkerDied
from opmark.schema import Case, Environment
from opmark.schema.messages import Hello, decode_hello, encode
from opmark.units import seconds
from opmark.version import VERSION

_POLL_INTERVAL = 0.25
_LINGER = 10.0
"""Seconds that rank 0 has to print what it found: a launcher ends all processes when one fails."""


def serve_rank_zero(place: JobRank, cases: Sequence[Case], say: Say, clocks: ClockLocks) -> int:
    """Do the part of a rank above 0: nothing, where one worker is enough for each case. Return the exit code."""
    if takes_ranks(cases):
        return serve(place, command_id(cases), say, clocks)
    say(f"rank {place.rank} has nothing to do: these cases take one process, and rank 0 does them")
    return 0


def serve(place: JobRank, command: str, say: Say, clocks: ClockLocks) -> int:
    """Return the exit code, which rank 0 decides. Raise UserError where rank 0 cannot be reached, or refuses."""
    secret = read_secret()
    try:
        connection = connect(place.host, place.port, time.monotonic() + ARRIVAL_TIMEOUT)
    except TimeoutError as error:
        raise UserError(
            f"rank {place.rank} on {platform.node()} did not reach rank 0 at {place.host}, port {place.port} "
            f"({place.port_of}), within {seconds(ARRIVAL_TIMEOUT)}: {error}",
            f"MASTER_ADDR is the host of rank 0; {PORT} names a port that no firewall closes, the same for all ranks",
        ) from None
    try:
        first_host = _greet(connection, place, command, secret)
        connection.stay_alive()
        return _Agent(place, first_host, connection, say, clocks).run()
    finally:
        connection.close()


def _greet(connection: RankConnection, place: JobRank, command: str, secret: bytes) -> str:
    """The name of rank 0's host."""
    here, nonce = platform.node(), secrets.token_hex(32)
    who = Greeting(VERSION, place.rank, place.size, place.local_rank, place.local_size, here, command, nonce)
    at = f"what listens at {place.host}, port {place.port} ({place.port_of})"
    try:
        prove_to_rank_zero(connection, who, secret)
        answer = connection.receive(reception)
    except NotAuthenticated as error:
        raise UserError(f"{at}, {error}: it may not be the opmark of rank 0, and is not obeyed", SAME_FOR_ALL) from None
    except ConnectionLost as loss:
        raise UserError(f"{at}, {loss.reason}: it is not the opmark of rank 0, or that has ended", None) from None
    if isinstance(answer, Refusal):
        with suppress(ConnectionLost):
            connection.receive(reception)  # until rank 0, which is to say the same, has ended
        raise UserError(answer.reason, "every rank is started with the same command of the same opmark")
    found: str = answer.host
    return found


class _RankZeroLost(NamedTuple):
    reason: str


class _WorkerClosed(NamedTuple):
    """The worker's last line was read."""

    process: int


_Event = FromRankZero | _RankZeroLost | _WorkerClosed


class _ForwardingInbox(queue.Queue[RankLine]):
    """Sends the worker's lines to rank 0 at once; the end of the lines is an event for the agent. The first line of a
    worker, its hello, is sent once the clocks of its GPU are locked."""

    def __init__(self, connection: RankConnection, events: queue.Queue[_Event], clocks: ClockLocks) -> None:
        super().__init__()
        self._connection = connection
        self._events = events
        self._clocks = clocks
        self._greeted = 0
        """The start whose hello was sent last."""

    def put(self, item: RankLine, block: bool = True, timeout: float | None = None) -> None:
        if item.line is None:
            self._events.put(_WorkerClosed(item.start))
            return
        line = item.line
        if item.start != self._greeted:
            self._greeted, line = item.start, encode(self._clocks.lock(decode_hello(line)))
        with suppress(ConnectionLost):  # the agent learns of it itself
            self._connection.send(WorkerLine(item.start, line.decode(errors="replace").rstrip("\n")))


class _Agent:
    def __init__(
        self, place: JobRank, first_host: str, connection: RankConnection, say: Say, clocks: ClockLocks
    ) -> None:
        self._name = f"rank {place.rank} on {platform.node()}"
        self._rank_zero = f"rank 0 on {first_host}"
        self._connection = connection
        self._say = say
        self._events: queue.Queue[_Event] = queue.Queue()
        self._worker = LocalRank(place.rank, _ForwardingInbox(connection, self._events, clocks))
        self._process = 0
        self._death_reported = True
        """Whether nothing is left to say about the worker's end."""

    def run(self) -> int:
        """Do what rank 0 says; return the exit code."""
        threading.Thread(target=self._receive, daemon=True).start()
        try:
            while True:
                try:
                    event = self._events.get(timeout=_POLL_INTERVAL)
                except queue.Empty:
                    self._report_death()
                    continue
                if isinstance(event, _RankZeroLost):
                    self._say(f"{self._name} ends: {self._rank_zero} is gone, its opmark {event.reason}")
                    return 1
                if isinstance(event, End):
                    return self._end(event)
                with suppress(ConnectionLost):  # `_receive` reports it next
                    self._handle(event)
        finally:
            self._worker.stop()

    def _receive(self) -> None:
        try:
            while True:
                self._events.put(self._connection.receive(from_rank_zero))
        except ConnectionLost as loss:
            self._events.put(_RankZeroLost(loss.reason))

    def _handle(self, event: Start | ForwardLine | Stop | StateRequest | _WorkerClosed) -> None:
        if isinstance(event, Start):
            self._start(event)
        elif event.process != self._process:
            return
        elif isinstance(event, ForwardLine):
            with suppress(WorkerDied):  # `_report_death` says how
                self._worker.send(event.line.encode())
        elif isinstance(event, Stop):
            self._stop()
        elif isinstance(event, StateRequest):
            self._connection.send(State(event.process, self._worker.state()))
        else:
            self._report_close()

    def _start(self, order: Start) -> None:
        """Start a worker. Where that is not possible, answer as the worker would have done itself."""
        self._stop()
        self._process = order.process
        try:
            info = find_backend(order.backend)
            reason = why_missing(info)
            if not reason:
                self._worker.start(info, order.threads, self._environ(info, order.environ), order.process)
                self._death_reported = False
                return
        except UserError as error:
            reason = error.message
        except OSError as error:
            self._connection.send(Death(order.process, "error", f"its process cannot be started: {error}"))
            return
        facts = {**host(), "opmark": VERSION, "backend": order.backend}
        self._connection.send(WorkerLine(order.process, encode(Hello(reason, Environment.of(facts))).decode()))

    def _environ(self, info: BackendInfo, given: Mapping[str, str]) -> dict[str, str]:
        """The variables of the worker: the limit on instructions is that of this host's processor, and the network
        interface is the one from this host to rank 0's."""
        others = {name: value for name, value in given.items() if name != instruction_set.VARIABLE}
        limit = instruction_set.environ(instruction_set.limit_for(info))
        return with_interface({**others, **limit}, self._connection.own_address)

    def _stop(self) -> None:
        self._worker.stop()
        self._death_reported = True

    def _report_death(self) -> None:
        """Tell rank 0 of the worker's death: a pipe stays open while a process that the worker started lives on."""
        if self._death_reported:
            return
        death = self._worker.died(DOING)
        if death:
            self._death_reported = True
            with suppress(ConnectionLost):
                self._connection.send(Death(self._process, death.status, death.reason, death.illegal))

    def _report_close(self) -> None:
        """Tell rank 0 how the worker ended, then that there will be no more lines."""
        deadline = time.monotonic() + 1.0
        while not self._death_reported and time.monotonic() < deadline:
            self._report_death()
            time.sleep(0.01)
        self._connection.send(WorkerLine(self._process, None))

    def _end(self, end: End) -> int:
        self._worker.stop()
        self._say(end.message)
        deadline = time.monotonic() + _LINGER
        while end.code and (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                if isinstance(self._events.get(timeout=left), _RankZeroLost):
                    break
        return end.code
