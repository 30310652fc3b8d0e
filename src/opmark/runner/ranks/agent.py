"""The process of a rank above 0: it has a worker, and does what rank 0's process says until that is over or gone."""

from __future__ import annotations

import platform
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from opmark.errors import UserError
from opmark.guests.place import why_missing
from opmark.hardware.detect import host
from opmark.interfaces import BackendInfo
from opmark.registry import backend as find_backend
from opmark.runner import instructions
from opmark.runner.process import WorkerDied
from opmark.runner.ranks.gathering import GATHER_WITHIN, command_id, takes_ranks
from opmark.runner.ranks.interface import through
from opmark.runner.ranks.launcher import PORT, Place
from opmark.runner.ranks.members import Heard, LocalMember
from opmark.runner.ranks.orders import encode
from opmark.runner.ranks.wire import (
    DOING,
    Ask,
    Death,
    End,
    FromConductor,
    Greeting,
    Link,
    LinkLost,
    Order,
    Refusal,
    Said,
    Start,
    State,
    Stop,
    connected,
    from_conductor,
    reception,
)
from opmark.runner.supervisor import Say
from opmark.runner.worker import Hello
from opmark.schema import Case, Environment
from opmark.units import seconds
from opmark.version import VERSION

_LOOK_AGAIN = 0.25
# A launcher ends all processes when one fails: rank 0 has so long to print what it found.
_LINGER = 10.0


def attend(place: Place, cases: Sequence[Case], say: Say) -> int:
    """What a rank above 0 does about these cases, and its exit code: nothing, where one worker is enough for each."""
    if takes_ranks(cases):
        return serve(place, command_id(cases), say)
    say(f"rank {place.rank} has nothing to do: these cases take one process, and rank 0 does them")
    return 0


def serve(place: Place, command: str, say: Say) -> int:
    """The exit code, which rank 0 decides. UserError where rank 0 cannot be reached, or refuses."""
    link = _link(place)
    try:
        conductor = _greet(link, place, command)
        link.stay_alive()
        return _Agent(place, conductor, link, say).run()
    finally:
        link.close()


def _link(place: Place) -> Link:
    try:
        return connected(place.host, place.port, time.monotonic() + GATHER_WITHIN)
    except TimeoutError as error:
        raise UserError(
            f"rank {place.rank} on {platform.node()} did not reach rank 0 at {place.host}, port {place.port} "
            f"({place.port_of}), within {seconds(GATHER_WITHIN)}: {error}",
            f"MASTER_ADDR is the host of rank 0; {PORT} names a port that no firewall closes, the same for all ranks",
        ) from None


def _greet(link: Link, place: Place, command: str) -> str:
    """The name of rank 0's host."""
    at = f"what listens at {place.host}, port {place.port} ({place.port_of})"
    try:
        link.tell(
            Greeting(VERSION, place.rank, place.size, place.local_rank, place.local_size, platform.node(), command)
        )
        answer = link.hear(reception)
    except LinkLost as loss:
        raise UserError(f"{at}, {loss.reason}: it is not the opmark of rank 0, or that has ended", None) from None
    if isinstance(answer, Refusal):
        with suppress(LinkLost):
            link.hear(reception)  # until rank 0, which is to say the same, has ended
        raise UserError(answer.reason, "every rank is started with the same command of the same opmark")
    found: str = answer.host
    return found


class _Lost(NamedTuple):
    reason: str


class _Closed(NamedTuple):
    """The worker's last line was heard."""

    process: int


class _Lines(queue.Queue[Heard]):
    """What the worker says goes out at once; its end is for the agent."""

    def __init__(self, link: Link, events: queue.Queue[FromConductor | _Lost | _Closed]) -> None:
        super().__init__()
        self._link = link
        self._events = events

    def put(self, item: Heard, block: bool = True, timeout: float | None = None) -> None:
        if item.line is None:
            self._events.put(_Closed(item.start))
            return
        with suppress(LinkLost):  # the agent hears of it itself
            self._link.tell(Said(item.start, item.line.decode(errors="replace").rstrip("\n")))


class _Agent:
    def __init__(self, place: Place, conductor: str, link: Link, say: Say) -> None:
        self._name = f"rank {place.rank} on {platform.node()}"
        self._conductor = f"rank 0 on {conductor}"
        self._link = link
        self._say = say
        self._events: queue.Queue[FromConductor | _Lost | _Closed] = queue.Queue()
        self._worker = LocalMember(place.rank, _Lines(link, self._events))
        self._process = 0
        self._mourned = True
        """Whether nothing is left to say of the worker's end."""

    def run(self) -> int:
        threading.Thread(target=self._hear, daemon=True).start()
        try:
            while True:
                try:
                    event = self._events.get(timeout=_LOOK_AGAIN)
                except queue.Empty:
                    self._look()
                    continue
                if isinstance(event, _Lost):
                    self._say(f"{self._name} ends: {self._conductor} is gone, its opmark {event.reason}")
                    return 1
                if isinstance(event, End):
                    return self._ended(event)
                with suppress(LinkLost):  # `_hear` says so next
                    self._do(event)
        finally:
            self._worker.stop()

    def _hear(self) -> None:
        try:
            while True:
                self._events.put(self._link.hear(from_conductor))
        except LinkLost as loss:
            self._events.put(_Lost(loss.reason))

    def _do(self, event: Start | Order | Stop | Ask | _Closed) -> None:
        if isinstance(event, Start):
            self._start(event)
        elif event.process != self._process:
            return
        elif isinstance(event, Order):
            with suppress(WorkerDied):  # a look at it says how
                self._worker.tell(event.line.encode())
        elif isinstance(event, Stop):
            self._stop()
        elif isinstance(event, Ask):
            self._link.tell(State(event.process, self._worker.state()))
        else:
            self._closed()

    def _start(self, order: Start) -> None:
        """A worker that cannot be is answered for, as it would have done itself."""
        self._stop()
        self._process = order.process
        try:
            info = find_backend(order.backend)
            reason = why_missing(info)
            if not reason:
                self._worker.start(info, order.threads, self._environ(info, order.environ), order.process)
                self._mourned = False
                return
        except UserError as error:
            reason = error.message
        except OSError as error:
            self._link.tell(Death(order.process, "error", f"its process cannot be started: {error}"))
            return
        facts = {**host(), "opmark": VERSION, "backend": order.backend}
        self._link.tell(Said(order.process, encode(Hello(reason, Environment.of(facts))).decode()))

    def _environ(self, info: BackendInfo, given: Mapping[str, str]) -> dict[str, str]:
        """What the processor of this host allows counts here, and the way from this host to rank 0's."""
        others = {name: value for name, value in given.items() if name != instructions.VARIABLE}
        limit = instructions.recall(info.name) if info.device == "cpu" else None
        return through({**others, **instructions.environ(limit)}, self._link.own_address)

    def _stop(self) -> None:
        self._worker.stop()
        self._mourned = True

    def _look(self) -> None:
        """A pipe stays open while a process that the worker started lives on; its own death counts."""
        if self._mourned:
            return
        death = self._worker.died(DOING)
        if death:
            self._mourned = True
            with suppress(LinkLost):
                self._link.tell(Death(self._process, death.status, death.reason, death.illegal))

    def _closed(self) -> None:
        """How it ended first, then that there will be no more lines."""
        deadline = time.monotonic() + 1.0
        while not self._mourned and time.monotonic() < deadline:
            self._look()
            time.sleep(0.01)
        self._link.tell(Said(self._process, None))

    def _ended(self, end: End) -> int:
        self._worker.stop()
        self._say(end.message)
        deadline = time.monotonic() + _LINGER
        while end.code and (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                if isinstance(self._events.get(timeout=left), _Lost):
                    break
        return end.code
