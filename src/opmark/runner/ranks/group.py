"""A group of ranks, seen from the parent: commands to each rank, one record of their replies, an end to every wait."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from opmark.errors import UserError
from opmark.plugin import BackendInfo
from opmark.runner import instruction_set
from opmark.runner.clocks import FACT
from opmark.runner.ranks.rank_process import Inbox, LocalRank, RankProcess
from opmark.runner.supervisor import StartAttempts, WorkerOptions
from opmark.runner.worker_process import WorkerDied, record_of_death
from opmark.schema import Environment, Record, Task
from opmark.schema.messages import (
    Command,
    Hello,
    Joined,
    JoinFailed,
    JoinGroup,
    Listening,
    RunTask,
    TaskReply,
    decode_hello,
    decode_reply,
    encode,
)
from opmark.schema.record import MEASURED, utc_now
from opmark.units import count_noun, seconds

JOIN_TIMEOUT = 60.0
LOOPBACK = "127.0.0.1"
_GRACE = 2.0
"""Seconds in which the others have to answer after one rank has failed; later they are stuck, waiting for it."""
_POLL_INTERVAL = 0.25
_SHORT_PAUSE = 0.01
_MAX_STATES = 16
"""Silent ranks that are asked for their state; ranks on other hosts may take their time to say nothing."""

T = TypeVar("T")


class RankGroup:
    """The ranks of one backend. Its processes are started once for all tasks, and anew after a task that failed."""

    def __init__(
        self,
        info: BackendInfo,
        threads: int,
        ranks: Sequence[RankProcess],
        inbox: Inbox,
        options: WorkerOptions,
        *,
        host: str = LOOPBACK,
        local_ranks: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        """`host`: where rank 0 can be reached. `local_ranks`: by rank, which one it is of how many on its host."""
        self._info = info
        self._threads = threads
        self._ranks = ranks
        self._inbox = inbox
        self._options = options
        self._host = host
        self._local = local_ranks or {one.rank: (one.rank, len(ranks)) for one in ranks}
        self._attempts = StartAttempts(info.name)
        self._starts = 0
        """Number of starts: what the processes of an earlier one said may come late."""
        self._hellos: dict[int, Hello] = {}
        self._engine = ""
        """Empty until the ranks have joined each other."""
        self._environment = ""
        self._sent_at = 0.0
        """When the ranks were given the command that they are at."""

    def start(self) -> Hello:
        """One hello for all ranks. Raise WorkerDied where a rank cannot start, or the ranks cannot join each other."""
        if self._hellos:
            with suppress(WorkerDied):  # processes that were to join anew: new ones are started
                return self._start_once()
        return self._attempts.attempt(self._start_once)

    def run(self, task: Task) -> Record:
        """The record of a task, whatever becomes of the ranks."""
        self._options.begin(task)
        if gone := self._why_gone():
            return Record(task, "error", gone, started=utc_now(), untried=True)
        since = time.perf_counter()
        try:
            try:
                return self._attempt(task)
            except WorkerDied as death:
                if not death.idle:
                    raise
            self.close()  # ranks died while there was nothing to do: new ones get the task, once
            return self._attempt(task)
        except WorkerDied as death:
            self.close()
            record = record_of_death(task, death, time.perf_counter() - since, self._environment)
            if not death.starting:
                return record
            return replace(record, untried=True) if self._why_gone() else self._attempts.charge(record)

    def close(self) -> None:
        for one in self._ranks:
            one.stop()
        self._hellos.clear()
        self._engine = ""

    def finish(self) -> None:
        """End all ranks: none of them is kept for further tasks."""
        self.close()

    def _attempt(self, task: Task) -> Record:
        if self._hellos and any(one.died("waiting for a task") for one in self._ranks):
            self.close()
        hello = self.start()
        if hello.unavailable:
            return Record(task, "skipped", hello.unavailable)
        started, since = utc_now(), time.perf_counter()
        for one in self._ranks:
            self._send(one.rank, RunTask(task))
        replies, death = self._task_replies()
        record = merge_replies(task, replies, {one.rank: one.where for one in self._ranks}, death)
        if not record.started:
            record = replace(record, started=started, duration=time.perf_counter() - since)
        if death or not all(reply.usable for reply in replies.values()):
            self.close()
        elif record.status == "oom" or (record.status not in MEASURED and self._info.device != "cpu"):
            # Memory may still be held, and the engines of devices do not like to be left by one rank before the others.
            self.close()
        elif record.status not in MEASURED:
            self._engine = ""  # it is not known which rank got how far: they join each other anew for the next task
        return self._options.clocks.check(replace(record, environment=self._environment), hello)

    def _start_once(self) -> Hello:
        try:
            if not self._hellos:
                self._start_processes()
            reason = self._why_unavailable()
            if not reason and not self._engine:
                self._join()
            return Hello(reason, self._common_environment())
        except WorkerDied as death:
            if death.status == "skipped":  # the framework has no way to join, and would have none next time
                hello = Hello(death.reason, self._common_environment())
                self.close()
                return hello
            self.close()
            raise

    def _start_processes(self) -> None:
        if gone := self._why_gone():
            raise WorkerDied("error", gone)
        self._starts += 1
        try:
            for one in self._ranks:
                one.start(self._info, self._threads, self._environ(one.rank), self._starts)
            self._hellos = self._all_replies(self._hello, self._options.start_timeout, "starting")
        except UserError as error:  # its interpreter is broken, or cannot be given what a worker needs
            raise WorkerDied("error", error.message) from None
        except OSError as error:  # so many processes or open files are not allowed
            raise WorkerDied("error", f"{len(self._ranks)} ranks cannot be started: {error.strerror}") from None

    def _hello(self, rank: int, line: bytes) -> Hello:
        """The hello of a rank with the clocks of its GPU locked; for a rank elsewhere, its own opmark locks them."""
        hello = decode_hello(line)
        return self._options.complete_hello(hello) if isinstance(self._ranks[rank], LocalRank) else hello

    def _environ(self, rank: int) -> dict[str, str]:
        """The variables that torchrun would set, but for the address of the master, which `JoinGroup` tells."""
        local, size = self._local[rank]
        found = {
            **instruction_set.environ(instruction_set.limit_for(self._info)),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(self._ranks)),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(size),
        }
        if self._host == LOOPBACK and sys.platform == "linux":
            # A host's own name may lead to an address that is not there; within one host there is a better way.
            found["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
        return found

    def _why_unavailable(self) -> str | None:
        for rank, hello in self._hellos.items():
            if hello.unavailable:
                everywhere = all(other.unavailable for other in self._hellos.values())
                return hello.unavailable if everywhere else f"{self._ranks[rank].where}: {hello.unavailable}"
        return shared_device(self._info, [self._hellos[one.rank].environment.facts for one in self._ranks])

    def _join(self) -> None:
        """Rank 0 says where it listens; then the others join it."""
        size = len(self._ranks)
        timeout = max(JOIN_TIMEOUT, self._options.timeout)
        self._sent_at = time.monotonic()
        deadline = self._sent_at + min(JOIN_TIMEOUT, self._options.start_timeout)
        self._send(0, JoinGroup(0, size, self._host, 0, timeout))
        listening = self._join_reply(*self._next_line(deadline, "joining"))
        assert isinstance(listening, Listening)
        for rank in range(1, size):
            self._send(rank, JoinGroup(rank, size, self._host, listening.port, timeout))
        joined = self._all_replies(self._join_reply, deadline - time.monotonic(), "joining")[0]
        assert isinstance(joined, Joined)
        self._engine = joined.engine
        environment = self._common_environment()
        self._environment = environment.id
        self._options.keep(environment)

    def _join_reply(self, rank: int, line: bytes) -> Listening | Joined:
        """Raise WorkerDied for a rank that cannot join: the others never get any further without it."""
        reply = decode_reply(line)
        if isinstance(reply, JoinFailed):
            raise WorkerDied(reply.status, f"{self._ranks[rank].where} cannot join: {reply.reason}")
        assert isinstance(reply, Listening | Joined)
        return reply

    def _common_environment(self) -> Environment:
        """The environment of rank 0 and, once they have joined, who the others are."""
        facts = dict(self._hellos[0].environment.facts)
        if self._engine:
            others = [hello.environment.facts for _, hello in sorted(self._hellos.items())]
            hosts = [own.get("machine") for own in others]
            facts |= {"ranks": len(self._ranks), "engine": self._engine, "hosts": hosts}
            if "gpu_uuid" in facts:
                facts["gpu_uuids"] = [own.get("gpu_uuid") for own in others]
            clocks = [own.get(FACT) for own in others]
            if len(set(clocks)) > 1:
                facts[FACT] = clocks
        return Environment.of(facts)

    def _task_replies(self) -> tuple[dict[int, TaskReply], WorkerDied | None]:
        """The reply of each rank and, where some did not answer, how that ended."""
        found: dict[int, TaskReply] = {}
        self._sent_at = time.monotonic()
        deadline = self._sent_at + self._options.timeout
        while len(found) < len(self._ranks):
            try:
                rank, line = self._next_line(deadline, "running the task", set(found))
            except WorkerDied as death:
                return found, death
            reply = decode_reply(line)
            assert isinstance(reply, TaskReply)
            found[rank] = reply
            if reply.record.status not in MEASURED and not reply.follows:
                deadline = min(deadline, time.monotonic() + _GRACE)
        return found, None

    def _all_replies(self, decode: Callable[[int, bytes], T], timeout: float, doing: str) -> dict[int, T]:
        found: dict[int, T] = {}
        self._sent_at = time.monotonic()
        deadline = self._sent_at + timeout
        while len(found) < len(self._ranks):
            rank, line = self._next_line(deadline, doing, set(found))
            found[rank] = decode(rank, line)
        return found

    def _next_line(self, deadline: float, doing: str, answered: set[int] | None = None) -> tuple[int, bytes]:
        """The next line of any rank. Raise WorkerDied where a rank has died, or all are silent for too long. Ranks that
        have `answered` may end."""
        answered = answered or set()
        while True:
            try:
                heard = self._inbox.get(timeout=max(0.0, min(_POLL_INTERVAL, deadline - time.monotonic())))
            except queue.Empty:
                for one in self._ranks:
                    if one.rank not in answered and (death := one.died(doing)):
                        raise _with_name(one, death) from None
                if time.monotonic() >= deadline:
                    raise self._silence(time.monotonic() - self._sent_at, doing, answered) from None
                continue
            if heard.start != self._starts or (heard.line is None and heard.rank in answered):
                continue
            if heard.line is None:
                raise self._end_of(self._ranks[heard.rank], doing)
            return heard.rank, heard.line

    def _why_gone(self) -> str:
        """Why no process can be started any more for one of the ranks; empty while all can."""
        return next((one.gone for one in self._ranks if one.gone), "")

    def _end_of(self, one: RankProcess, doing: str) -> WorkerDied:
        """The death of a rank that has closed its pipe: it does so a moment before its process is gone."""
        until = time.monotonic() + _GRACE
        while time.monotonic() < until:
            if death := one.died(doing):
                return _with_name(one, death)
            time.sleep(_SHORT_PAUSE)
        return WorkerDied("error", f"{one.where}: its process closed its end while {doing}")

    def _silence(self, waited: float, doing: str, answered: set[int]) -> WorkerDied:
        """A time-out that names the silent ranks. Which one is to blame cannot be told from outside, unless one was
        stopped."""
        silent = [one for one in self._ranks if one.rank not in answered]
        states = [f"{one.where} is {state}" for one in silent[:_MAX_STATES] if (state := one.state())]
        who = "any rank" if len(silent) == len(self._ranks) else ", ".join(one.where for one in silent)
        why = f" ({'; '.join(states)})" if states else ""
        return WorkerDied("timeout", f"no answer of {who} within {seconds(waited)} while {doing}{why}; killed")

    def _send(self, rank: int, command: Command) -> None:
        try:
            self._ranks[rank].send(encode(command))
        except WorkerDied as death:
            raise _with_name(self._ranks[rank], death) from None


def _with_name(one: RankProcess, death: WorkerDied) -> WorkerDied:
    return WorkerDied(death.status, f"{one.where}: {death.reason}", illegal=death.illegal, idle=death.idle)


def merge_replies(
    task: Task, replies: Mapping[int, TaskReply], names: Mapping[int, str], death: WorkerDied | None
) -> Record:
    """One record of what all ranks say: that of rank 0, which has every rank's samples, or the first failure.

    A process that died by itself is the cause of what the others say. Otherwise a rank that says why it failed knows
    more than those that had to be ended because they waited for it.
    """
    if death and death.status != "timeout":
        return Record(task, death.status, death.reason)
    failed = {
        rank: reply.record
        for rank, reply in replies.items()
        if reply.record.status not in MEASURED and not reply.follows
    }
    if failed:
        rank, first = next(iter(failed.items()))
        alike = len(failed) == len(names) and len({record.reason for record in failed.values()}) == 1
        return first if alike else replace(first, reason=f"{names[rank]}: {first.reason}")
    if death:
        return Record(task, death.status, death.reason)
    return replies[0].record


def shared_device(info: BackendInfo, facts: Sequence[Mapping[str, Any]]) -> str | None:
    """Why these ranks cannot form a group: there are more of them than devices. None where each has its own."""
    if info.device == "cpu":
        return None
    holders: dict[tuple[Any, Any], list[int]] = {}
    for rank, one in enumerate(facts):
        if "gpu_uuid" in one:
            holders.setdefault((one.get("machine"), one["gpu_uuid"]), []).append(rank)
    for (_, device), ranks in holders.items():
        if len(ranks) > 1:
            named = " and ".join(map(str, ranks))
            there = f"{count_noun(len(holders), 'device')} {'is' if len(holders) == 1 else 'are'} there"
            return f"{count_noun(len(facts), 'rank')} need a device each, {there}: ranks {named} would share {device}"
    return None
