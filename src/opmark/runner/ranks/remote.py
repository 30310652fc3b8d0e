"""Rank 0's end of another rank's process: what goes to its worker, and what comes from there."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from itertools import count

import msgspec

from opmark.interfaces import BackendInfo
from opmark.runner.process import WorkerDied
from opmark.runner.ranks.interface import VARIABLE, through
from opmark.runner.ranks.members import Heard, Inbox, LocalMember
from opmark.runner.ranks.wire import (
    DOING,
    Ask,
    Death,
    End,
    Greeting,
    Link,
    LinkLost,
    Order,
    Said,
    Start,
    State,
    Stop,
    from_agent,
)

_STATE_WITHIN = 2.0


class Post:
    """The connection to one agent, which has one worker at a time. It outlasts the crews that use it."""

    def __init__(self, link: Link, who: Greeting) -> None:
        self.who = who
        self.where = f"rank {who.rank} on {who.host}"
        self.link = link
        self.lost = ""
        """Why it is gone, after `rank 1 on node-b: `; empty while it is there."""
        self._numbers = count(1)
        self._member: RemoteMember | None = None
        self._changing = threading.Lock()

    def listen(self) -> None:
        threading.Thread(target=self._hear, daemon=True).start()

    def start(self, member: RemoteMember, backend: str, threads: int, environ: Mapping[str, str]) -> None:
        process = next(self._numbers)
        with self._changing:
            self._member = member
            member.process = process
        self.tell(Start(process, backend, threads, dict(environ)))

    def tell(self, message: msgspec.Struct) -> None:
        """Nothing is raised: whoever uses it looks whether it is lost."""
        try:
            self.link.tell(message)
        except LinkLost as loss:
            self._lose(loss)

    def end(self, code: int, message: str) -> None:
        with suppress(LinkLost):  # an agent that is gone cannot be told
            self.link.tell(End(code, message))

    def _hear(self) -> None:
        try:
            while True:
                word = self.link.hear(from_agent)
                with self._changing:
                    if self._member and self._member.process == word.process:
                        self._member.take(word)
        except LinkLost as loss:
            self._lose(loss)

    def _lose(self, loss: LinkLost) -> None:
        self.lost = self.lost or f"its opmark {loss.reason}"


class RemoteMember:
    """A rank whose worker is a child of another opmark, mostly on another host."""

    def __init__(self, post: Post, inbox: Inbox, interface: str | None = None) -> None:
        """`interface`: the one to use, where its own connection to rank 0 does not tell."""
        self.rank = post.who.rank
        self.where = post.where
        self.process = 0
        """Which of the worker processes of the post is this one's; 0 for none."""
        self._post = post
        self._inbox = inbox
        self._more = {VARIABLE: interface} if interface else {}
        self._number = 0
        self._death: Death | None = None
        self._states: queue.Queue[str] = queue.Queue()

    @property
    def gone(self) -> str:
        return f"{self.where}: {self._post.lost}" if self._post.lost else ""

    def start(self, info: BackendInfo, threads: int, environ: Mapping[str, str], number: int) -> None:
        self._number, self._death = number, None
        self._post.start(self, info.name, threads, {**environ, **self._more})

    def tell(self, line: bytes) -> None:
        self._post.tell(Order(self.process, line.decode()))
        death = self.died("waiting for a task")
        if death:
            raise WorkerDied(death.status, death.reason, illegal=death.illegal, idle=not self.gone)

    def died(self, doing: str) -> WorkerDied | None:
        if self._post.lost:
            return WorkerDied("error", f"{self._post.lost}, while {doing}")
        if self._death is None:
            return None
        return WorkerDied(self._death.status, self._death.reason.replace(DOING, doing), illegal=self._death.illegal)

    def state(self) -> str:
        if self._post.lost or not self.process:
            return ""
        self._states = queue.Queue()  # an answer to an earlier question may have come too late
        self._post.tell(Ask(self.process))
        try:
            return self._states.get(timeout=_STATE_WITHIN)
        except queue.Empty:
            return "not to be reached"

    def stop(self) -> None:
        if self.process:
            self._post.tell(Stop(self.process))
        self.process = 0

    def take(self, word: Said | Death | State) -> None:
        if isinstance(word, Said):
            self._inbox.put(Heard(self.rank, self._number, None if word.line is None else word.line.encode()))
        elif isinstance(word, Death):
            self._death = word
        else:
            self._states.put(word.state)


class HomeMember(LocalMember):
    """Rank 0's own worker, in a world that others join from elsewhere."""

    def __init__(self, host: str, address: str, inbox: Inbox) -> None:
        """`address`: that by which the others reach this host."""
        super().__init__(0, inbox)
        self.where = f"rank 0 on {host}"
        self._address = address

    def start(self, info: BackendInfo, threads: int, environ: Mapping[str, str], number: int) -> None:
        super().start(info, threads, through(environ, self._address), number)
