"""All ranks of a world, seen from their parent: orders to each, one record of their answers, an end to every wait."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from opmark.errors import UserError
from opmark.interfaces import BackendInfo
from opmark.runner import instructions
from opmark.runner.execute import utc_now
from opmark.runner.process import WorkerDied, lost
from opmark.runner.ranks.answers import merged
from opmark.runner.ranks.devices import shared_device
from opmark.runner.ranks.members import Inbox, Member
from opmark.runner.ranks.orders import Do, Done, Failed, Join, Joined, Listening, encode, hello, words
from opmark.runner.supervisor import START_TIMEOUT, Keep
from opmark.runner.worker import Hello
from opmark.schema import Environment, Record, Task
from opmark.units import seconds

JOIN_TIMEOUT = 60.0
LOOPBACK = "127.0.0.1"
# After one rank has failed, so long the others have to say the same; then they are stuck, waiting for it.
_GRACE = 2.0
_LOOK_AGAIN = 0.25
_MOMENT = 0.01
# Those on other hosts are asked how they are, and may take their time to say nothing.
_MOST_LOOKED_AT = 16
# Starts in a row that may fail before nothing is tried any more.
_MOST_STARTS = 2

T = TypeVar("T")


class Crew:
    """One world of ranks for one backend. Started once for all its tasks, and anew after each that failed."""

    def __init__(
        self,
        info: BackendInfo,
        threads: int,
        members: Sequence[Member],
        inbox: Inbox,
        timeout: float,
        keep: Keep,
        *,
        host: str = LOOPBACK,
        local_ranks: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        """`host`: where rank 0 can be reached. `local_ranks`: of each rank, which it is of how many on its host."""
        self._info = info
        self._threads = threads
        self._members = members
        self._inbox = inbox
        self._timeout = timeout
        self._keep = keep
        self._host = host
        self._local = local_ranks or {m.rank: (m.rank, len(members)) for m in members}
        self._starts = self._failed_starts = 0
        self._hellos: dict[int, Hello] = {}
        self._engine = ""
        self._environment = ""
        self._begun = False
        """Whether the ranks were given the task."""
        self._asked = 0.0
        """When the ranks were given the order that they are at."""

    def start(self) -> Hello:
        """The first word of all of them; WorkerDied where one of them cannot start, or they find no common world."""
        if not self._hellos:
            self._begin()
        reason = self._why_unavailable()
        if not reason and not self._engine:
            self._join()
        return Hello(reason, self._facts())

    def run(self, task: Task) -> Record:
        """A record, whatever happens."""
        since, self._begun = time.perf_counter(), False
        try:
            return self._handed_over(task)
        except WorkerDied as death:
            self.close()
            record = lost(task, death, time.perf_counter() - since, self._environment)
            return replace(record, untried=not self._begun)

    def close(self) -> None:
        for member in self._members:
            member.stop()
        self._hellos.clear()
        self._engine = ""

    def _handed_over(self, task: Task) -> Record:
        """Ranks that died while there was nothing to do are replaced, once: no task is to blame."""
        try:
            return self._given(task)
        except WorkerDied as death:
            if not death.idle:
                raise
        self.close()
        return self._given(task)

    def _given(self, task: Task) -> Record:
        if self._hellos and any(member.died("waiting for a task") for member in self._members):
            self.close()
        said = self._started()
        if said.unavailable:
            return Record(task, "skipped", said.unavailable)
        return self._attempt(task)

    def _started(self) -> Hello:
        self._nobody_gone()
        if self._failed_starts >= _MOST_STARTS:
            raise WorkerDied("error", "its ranks could not be started again after the last failure")
        living = bool(self._hellos)
        try:
            found = self.start()
        except WorkerDied:
            self.close()
            if living:  # processes that were to meet anew: before a task is charged with it, new ones are tried
                return self._started()
            self._failed_starts += 1
            raise
        self._failed_starts = 0
        return found

    def _begin(self) -> None:
        self._nobody_gone()
        self._starts += 1
        try:
            for member in self._members:
                member.start(self._info, self._threads, self._environ(member.rank), self._starts)
        except UserError as error:  # its interpreter is broken, or cannot be given what a worker needs
            self.close()
            raise WorkerDied("error", error.message) from None
        except OSError as error:  # so many processes or open files are not allowed
            self.close()
            raise WorkerDied("error", f"{len(self._members)} ranks cannot be started: {error.strerror}") from None
        try:
            self._hellos = self._from_all(lambda rank, line: hello.decode(line), START_TIMEOUT, "starting")
        except WorkerDied:
            self.close()
            raise

    def _environ(self, rank: int) -> dict[str, str]:
        """What torchrun would set, but for the address of the master, which every world tells anew."""
        local, size = self._local[rank]
        limit = instructions.recall(self._info.name) if self._info.device == "cpu" else None
        found = {
            **instructions.environ(limit),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(self._members)),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(size),
        }
        if self._host == LOOPBACK and sys.platform == "linux":
            # A host's own name may lead to an address that is not there; within one host there is a better way.
            found["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
        return found

    def _why_unavailable(self) -> str | None:
        for rank, said in self._hellos.items():
            if said.unavailable:
                everywhere = all(other.unavailable for other in self._hellos.values())
                return said.unavailable if everywhere else f"{self._members[rank].where}: {said.unavailable}"
        return shared_device(self._info, [self._hellos[m.rank].environment.facts for m in self._members])

    def _join(self) -> None:
        """Rank 0 says where it listens; then the others come."""
        size = len(self._members)
        within = max(JOIN_TIMEOUT, self._timeout)
        deadline = time.monotonic() + JOIN_TIMEOUT
        self._tell(0, Join(0, size, self._host, 0, within))
        port = self._listening(deadline)
        for rank in range(1, size):
            self._tell(rank, Join(rank, size, self._host, port, within))
        engines = self._from_all(self._joined, deadline - time.monotonic(), "joining")
        self._engine = engines[0]
        facts = self._facts()
        self._environment = facts.id
        self._keep(facts)

    def _listening(self, deadline: float) -> int:
        rank, line = self._heard(deadline, "joining")
        word = words.decode(line)
        if isinstance(word, Failed):
            raise self._cannot_join(rank, word)
        assert isinstance(word, Listening)
        return word.port

    def _joined(self, rank: int, line: bytes) -> str:
        """The engine; a rank that cannot is not waited for: the others never get any further without it."""
        word = words.decode(line)
        if isinstance(word, Failed):
            raise self._cannot_join(rank, word)
        assert isinstance(word, Joined)
        return word.engine

    def _cannot_join(self, rank: int, word: Failed) -> WorkerDied:
        return WorkerDied(word.status, f"{self._members[rank].where} cannot join: {word.reason}")

    def _facts(self) -> Environment:
        """Of rank 0, and who the others are."""
        facts = dict(self._hellos[0].environment.facts)
        if self._engine:
            hosts = [said.environment.facts.get("machine") for _, said in sorted(self._hellos.items())]
            facts |= {"ranks": len(self._members), "engine": self._engine, "hosts": hosts}
        return Environment.of(facts)

    def _attempt(self, task: Task) -> Record:
        started, since = utc_now(), time.perf_counter()
        self._begun = True
        for member in self._members:
            self._tell(member.rank, Do(task))
        done, death = self._answers()
        record = merged(task, done, {m.rank: m.where for m in self._members}, death)
        if not record.started:
            record = replace(record, started=started, duration=time.perf_counter() - since)
        if death or not all(one.usable for one in done.values()) or (record.status != "ok" and self._renewed(record)):
            self.close()
        elif record.status != "ok":
            self._engine = ""  # nobody knows who got how far: the next task gets a world of its own
        return replace(record, environment=self._environment)

    def _renewed(self, record: Record) -> bool:
        """Whether what is not right takes new processes: memory may still be held, and the engines of devices do not
        like to be left by one rank before the others."""
        return record.status == "oom" or self._info.device != "cpu"

    def _answers(self) -> tuple[dict[int, Done], WorkerDied | None]:
        """What each rank made of it, and how it ended where some did not answer."""
        found: dict[int, Done] = {}
        self._asked = time.monotonic()
        deadline = self._asked + self._timeout
        while len(found) < len(self._members):
            try:
                rank, line = self._heard(deadline, "running the task", set(found))
            except WorkerDied as death:
                return found, death
            word = words.decode(line)
            assert isinstance(word, Done)
            found[rank] = word
            if word.record.status != "ok" and not word.follows:
                deadline = min(deadline, time.monotonic() + _GRACE)
        return found, None

    def _from_all(self, decode: Callable[[int, bytes], T], within: float, doing: str) -> dict[int, T]:
        found: dict[int, T] = {}
        self._asked = time.monotonic()
        deadline = self._asked + within
        while len(found) < len(self._members):
            rank, line = self._heard(deadline, doing, set(found))
            found[rank] = decode(rank, line)
        return found

    def _heard(self, deadline: float, doing: str, answered: set[int] | None = None) -> tuple[int, bytes]:
        """The next line of any rank; WorkerDied where one has died, or nothing is said for too long. Those that have
        `answered` may go: they have said what they had to say."""
        answered = answered or set()
        while True:
            try:
                word = self._inbox.get(timeout=max(0.0, min(_LOOK_AGAIN, deadline - time.monotonic())))
            except queue.Empty:
                self._nobody_died(doing, answered)
                if time.monotonic() >= deadline:
                    raise self._silence(time.monotonic() - self._asked, doing, answered) from None
                continue
            if word.start != self._starts or (word.line is None and word.rank in answered):
                continue
            if word.line is None:
                raise self._end_of(self._members[word.rank], doing)
            return word.rank, word.line

    def _nobody_gone(self) -> None:
        gone = next((member.gone for member in self._members if member.gone), "")
        if gone:
            raise WorkerDied("error", gone)

    def _nobody_died(self, doing: str, answered: set[int]) -> None:
        for member in self._members:
            if member.rank not in answered and (death := member.died(doing)):
                raise _named(member, death)

    def _end_of(self, member: Member, doing: str) -> WorkerDied:
        """Of one that will say no more: a process closes its end a moment before it is gone."""
        until = time.monotonic() + _GRACE
        while time.monotonic() < until:
            if death := member.died(doing):
                return _named(member, death)
            time.sleep(_MOMENT)
        return WorkerDied("error", f"{member.where}: its process closed its end while {doing}")

    def _silence(self, within: float, doing: str, answered: set[int]) -> WorkerDied:
        """Which of those that are waited for are to blame cannot be told from outside, unless one was stopped."""
        silent = [member for member in self._members if member.rank not in answered]
        states = [f"{member.where} is {state}" for member in silent[:_MOST_LOOKED_AT] if (state := member.state())]
        who = "any rank" if len(silent) == len(self._members) else ", ".join(member.where for member in silent)
        why = f" ({'; '.join(states)})" if states else ""
        return WorkerDied("timeout", f"no answer of {who} within {seconds(within)} while {doing}{why}; killed")

    def _tell(self, rank: int, order: Join | Do) -> None:
        try:
            self._members[rank].tell(encode(order))
        except WorkerDied as death:
            raise _named(self._members[rank], death) from None


def _named(member: Member, death: WorkerDied) -> WorkerDied:
    return WorkerDied(death.status, f"{member.where}: {death.reason}", illegal=death.illegal, idle=death.idle)
