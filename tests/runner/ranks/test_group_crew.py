"""A group of ranks: real processes that fail in every way, and made-up ranks for what is hard to time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from ipaddress import ip_address
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend
from opmark.runner.ranks import group as crews
from opmark.runner.ranks.group import RankGroup
from opmark.runner.ranks.rank_process import Inbox, LocalRank, RankLine
from opmark.runner.supervisor import WorkerOptions
from opmark.runner.worker_process import WorkerDied
from opmark.schema import Environment, Record, Task
from opmark.schema.messages import (
    Hello,
    Joined,
    JoinFailed,
    JoinGroup,
    Listening,
    RunTask,
    TaskReply,
    decode_command,
    encode,
)

Tasks = Callable[..., Task]
NO_TIME = 120.0
"""Seconds that no wait may take: far beyond any time-out of these tests."""
A_MOMENT = 0.4
"""Seconds of a time-out in tests that wait for it."""


class FakeRank:
    """Says at once what its script says; silent where that is None."""

    gone = ""

    def __init__(self, rank: int, inbox: Inbox, script: Callable[[FakeRank, Any], Any]) -> None:
        self.rank = rank
        self.where = f"rank {rank}"
        self.starts = 0
        self.told: list[Any] = []
        self.stopped = 0
        self._inbox = inbox
        self._script = script

    def start(self, info: BackendInfo, threads: int, environ: Mapping[str, str], number: int) -> None:
        self.starts = number
        self.say(self._script(self, "start"))

    def send(self, line: bytes) -> None:
        order = decode_command(line)
        self.told.append(order)
        self.say(self._script(self, order))

    def say(self, word: Any) -> None:
        if word is not None:
            self._inbox.put(RankLine(self.rank, self.starts, encode(word)))

    def died(self, doing: str) -> WorkerDied | None:
        return None

    def state(self) -> str:
        return "stopped" if self.rank == 1 else ""

    def stop(self) -> None:
        self.stopped += 1


HELLO = Hello(None, Environment.of({"machine": "here"}))


def well(member: FakeRank, order: Any) -> Any:
    if order == "start":
        return HELLO
    if isinstance(order, JoinGroup):
        if order.rank == 0:
            member.say(Listening(4711))
        return Joined("fake")
    return TaskReply(Record(order.task, "ok", reason=f"of {member.rank}"))


def made_up(script: Callable[[FakeRank, Any], Any], ranks: int = 3, timeout: float = NO_TIME) -> tuple[RankGroup, Any]:
    inbox = Inbox()
    members = [FakeRank(rank, inbox, script) for rank in range(ranks)]
    return RankGroup(backend("torch-cpu"), 1, members, inbox, WorkerOptions(timeout)), members


def test_all_ranks_are_told_where_the_first_listens(rank_task: Tasks) -> None:
    crew, members = made_up(well)
    assert crew.run(rank_task()).reason == "of 0"
    joins = [member.told[0] for member in members]
    assert [(join.rank, join.size, join.port) for join in joins] == [(0, 3, 0), (1, 3, 4711), (2, 3, 4711)]


def test_a_world_is_joined_once_for_many_tasks_and_anew_after_a_failure(rank_task: Tasks) -> None:
    fail = [True]

    def script(member: FakeRank, order: Any) -> Any:
        if isinstance(order, RunTask) and fail[0]:
            return TaskReply(Record(order.task, "skipped", "not here"))
        return well(member, order)

    crew, members = made_up(script)
    assert crew.run(rank_task()).status == "skipped"
    fail[0] = False
    assert [crew.run(rank_task()).status for _ in range(3)] == ["ok"] * 3
    assert members[0].starts == 1
    assert sum(isinstance(order, JoinGroup) for order in members[0].told) == 2


def test_a_silent_rank_is_a_time_out_that_says_who_and_in_which_state(rank_task: Tasks) -> None:
    def script(member: FakeRank, order: Any) -> Any:
        return None if isinstance(order, RunTask) and member.rank == 1 else well(member, order)

    crew, members = made_up(script, timeout=A_MOMENT)
    record = crew.run(rank_task())
    assert record.status == "timeout"
    assert "no answer of rank 1 within" in record.reason
    assert "rank 1 is stopped" in record.reason
    assert all(member.stopped for member in members)


def test_after_a_failure_of_one_the_others_get_little_time(rank_task: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "_GRACE", 0.1)

    def script(member: FakeRank, order: Any) -> Any:
        if isinstance(order, RunTask):
            return TaskReply(Record(order.task, "error", "broke")) if member.rank == 2 else None
        return well(member, order)

    crew, members = made_up(script)
    since = time.monotonic()
    record = crew.run(rank_task())
    assert time.monotonic() - since < NO_TIME / 4
    assert (record.status, record.reason) == ("error", "rank 2: broke")
    assert all(member.stopped for member in members)


def test_late_words_of_an_ended_process_are_not_heard(rank_task: Tasks) -> None:
    crew, members = made_up(well)
    assert crew.run(rank_task()).status == "ok"
    crew.close()
    members[0]._inbox.put(RankLine(0, 1, encode(TaskReply(Record(rank_task(), "wrong", "old")))))
    assert crew.run(rank_task()).status == "ok"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start may take no longer than a task."""
    monkeypatch.setattr("opmark.runner.supervisor.SHORTEST_START", 0.0)


@pytest.mark.usefixtures("impatient")
def test_what_cannot_start_costs_one_task_and_is_not_tried_for_ever(rank_task: Tasks) -> None:
    crew, members = made_up(lambda member, order: None, timeout=A_MOMENT)
    since = time.monotonic()
    with pytest.raises(WorkerDied):
        crew.start()
    records = [crew.run(rank_task()) for _ in range(4)]
    assert time.monotonic() - since < NO_TIME / 4
    assert [(record.status, record.untried) for record in records] == [("timeout", False)] + [("timeout", True)] * 3
    assert {record.reason for record in records} == {records[0].reason}
    assert "torch-cpu cannot start: no answer of any rank within" in records[0].reason
    assert members[0].starts == 2


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("command", ["start", JoinGroup])
def test_a_rank_that_is_stopped_while_it_starts_or_joins_costs_no_task(rank_task: Tasks, command: Any) -> None:
    def script(member: FakeRank, order: Any) -> Any:
        stuck = member.rank == 1 and member.starts == 1
        return None if stuck and (order == command or isinstance(order, JoinGroup)) else well(member, order)

    crew, members = made_up(script, timeout=A_MOMENT)
    assert [crew.run(rank_task()).status for _ in range(2)] == ["ok", "ok"]
    assert members[0].starts == 2


def test_what_nobody_was_left_to_do_is_marked_as_untried(rank_task: Tasks) -> None:
    crew, members = made_up(well)
    assert not crew.run(rank_task()).untried
    members[1].gone = "rank 1 on node-b: its host is gone"
    crew.close()
    record = crew.run(rank_task())
    assert (record.status, record.reason, record.untried) == ("error", members[1].gone, True)


def test_a_rank_without_its_framework_is_named(rank_task: Tasks) -> None:
    def script(member: FakeRank, order: Any) -> Any:
        lacking = Hello("torch is not installed", HELLO.environment)
        return lacking if order == "start" and member.rank == 1 else well(member, order)

    record = made_up(script)[0].run(rank_task())
    assert (record.status, record.reason) == ("skipped", "rank 1: torch is not installed")


def test_ranks_that_say_why_they_cannot_start_may_go_at_once(rank_task: Tasks) -> None:
    def script(member: FakeRank, order: Any) -> Any:
        member.say(Hello("no GPU", HELLO.environment))
        member._inbox.put(RankLine(member.rank, member.starts, None))

    assert made_up(script)[0].start().unavailable == "no GPU"


def test_a_rank_that_cannot_join_is_named_at_once_with_its_reason(rank_task: Tasks) -> None:
    def script(member: FakeRank, order: Any) -> Any:
        if isinstance(order, JoinGroup):
            if order.rank == 0:  # and waits for the others
                return Listening(4711)
            return JoinFailed("error", "no route to host") if order.rank == 1 else None
        return well(member, order)

    since = time.monotonic()
    record = made_up(script)[0].run(rank_task())
    assert time.monotonic() - since < crews.JOIN_TIMEOUT / 2
    assert (record.status, record.reason) == ("error", "torch-cpu cannot start: rank 1 cannot join: no route to host")


def test_a_framework_that_cannot_join_at_all_is_unavailable_and_not_tried_again(rank_task: Tasks) -> None:
    def script(member: FakeRank, order: Any) -> Any:
        lacking = JoinFailed("skipped", "a build without torch.distributed")
        return lacking if isinstance(order, JoinGroup) else well(member, order)

    crew, members = made_up(script)
    reason = "rank 0 cannot join: a build without torch.distributed"
    assert crew.start().unavailable == reason
    assert members[0].starts == 1
    record = crew.run(rank_task())
    assert (record.status, record.reason, record.untried) == ("skipped", reason, False)


def test_living_ranks_that_cannot_meet_again_are_replaced_before_a_task_is_charged(rank_task: Tasks) -> None:
    def script(member: FakeRank, order: Any) -> Any:
        joined = sum(isinstance(told, JoinGroup) for told in member.told)
        if isinstance(order, JoinGroup) and member.starts == 1 and joined > 1:
            return JoinFailed("error", "the old world is in the way")
        if isinstance(order, RunTask) and member.starts == 1:
            return TaskReply(Record(order.task, "skipped", "not here"))
        return well(member, order)

    crew, members = made_up(script)
    assert crew.run(rank_task()).status == "skipped"
    assert crew.run(rank_task()).status == "ok"
    assert members[0].starts == 2


def test_memory_that_was_not_there_takes_new_processes(rank_task: Tasks) -> None:
    def script(member: FakeRank, order: Any) -> Any:
        if isinstance(order, RunTask) and member.starts == 1:
            return TaskReply(Record(order.task, "oom", "too much"))
        return well(member, order)

    crew, members = made_up(script)
    assert [crew.run(rank_task()).status for _ in range(2)] == ["oom", "ok"]
    assert members[0].starts == 2


def test_processes_that_the_system_does_not_allow_are_a_reason(rank_task: Tasks) -> None:
    def script(member: FakeRank, order: Any) -> Any:
        raise OSError(24, "Too many open files")

    record = made_up(script)[0].run(rank_task())
    assert (record.status, record.reason) == (
        "error",
        "torch-cpu cannot start: 3 ranks cannot be started: Too many open files",
    )


def test_a_record_of_a_death_says_when_it_began_and_how_long_it_took(rank_task: Tasks) -> None:
    def script(member: FakeRank, order: Any) -> Any:
        return None if isinstance(order, RunTask) else well(member, order)

    crew, _ = made_up(script, timeout=A_MOMENT)
    record = crew.run(rank_task())
    assert record.status == "timeout"
    assert record.started
    assert record.duration >= A_MOMENT


# Real ranks from here on.


@pytest.fixture
def crew() -> Iterator[Callable[..., RankGroup]]:
    with ExitStack() as stack:

        def start(ranks: int = 2, timeout: float = 60.0, kept: list[Environment] | None = None) -> RankGroup:
            inbox = Inbox()
            members = [LocalRank(rank, inbox) for rank in range(ranks)]
            keep = [] if kept is None else kept
            made = RankGroup(backend("torch-cpu"), 1, members, inbox, WorkerOptions(timeout, keep=keep.append))
            return stack.enter_context(closing(made))

        yield start


def _pids(crew: RankGroup) -> list[int]:
    return [member._process.pid for member in crew._ranks if isinstance(member, LocalRank) and member._process]


def test_ranks_measure_together_and_every_rank_is_kept(crew: Callable[..., RankGroup], rank_task: Tasks) -> None:
    kept: list[Environment] = []
    ranks = crew(3, kept=kept)
    first = ranks.run(rank_task(ranks=3))
    pids = _pids(ranks)
    second = ranks.run(rank_task(ranks=3, dtype="int32"))
    assert (first.status, second.status) == ("ok", "ok"), (first.reason, second.reason)
    assert _pids(ranks) == pids
    (measurement,) = first.measurements
    assert len(measurement.by_rank) == 3
    assert measurement.samples == [max(row) for row in zip(*measurement.by_rank, strict=True)]
    assert first.verification is not None
    assert (first.verification.checked, first.verification.after) == ("full", "same")
    assert first.cost is not None
    assert first.cost.traffic is not None
    assert first.cost.traffic.ranks == 3
    (environment,) = kept
    assert (environment.facts["engine"], environment.facts["ranks"]) == ("gloo", 3)
    assert first.environment == environment.id


FAULTS = {
    "raise": ("error", "rank 1: RuntimeError"),
    "exit": ("error", "rank 1: its process ended with exit code"),
    "kill": ("killed", "rank 1: its process was killed"),
    "oom": ("oom", "rank 1"),
    "wrong": ("wrong", "rank 1"),
    "hang": ("timeout", "no answer of"),
    "stop": ("timeout", "rank 1 is stopped"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_whatever_one_rank_does_is_one_record_and_the_next_task_is_measured(
    crew: Callable[..., RankGroup], rank_task: Tasks, kind: str
) -> None:
    ranks = crew(2, timeout=8.0 if kind in ("hang", "stop") else 60.0)
    ranks.start()
    pids = _pids(ranks)
    since = time.monotonic()
    record = ranks.run(rank_task("fault_ranks", kind=kind, rank=1))
    assert time.monotonic() - since < NO_TIME / 4
    status, reason = FAULTS[kind]
    assert record.status == status, record.reason
    assert reason in record.reason
    after = ranks.run(rank_task())
    assert after.status == "ok", after.reason
    if kind != "wrong":  # of which all ranks know before anything is exchanged, and no memory is held
        assert all(not _alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_killed_or_stopped_from_outside_in_the_middle_costs_one_task(
    crew: Callable[..., RankGroup], rank_task: Tasks, signal_: signal.Signals
) -> None:
    ranks = crew(2, timeout=8.0 if signal_ == signal.SIGSTOP else 60.0)
    ranks.start()
    victim = _pids(ranks)[1]
    task = rank_task(size=1 << 20)
    long = replace(task.settings.sampling, min_time=60.0, max_time=60.0)
    endless = replace(task, settings=replace(task.settings, sampling=long))
    threading.Timer(2.0, os.kill, (victim, signal_)).start()
    record = ranks.run(endless)
    assert record.status in ("killed", "error", "timeout")
    assert "rank 1" in record.reason
    assert ranks.run(rank_task()).status == "ok"


def test_a_rank_that_dies_while_idle_is_replaced_and_no_task_is_lost(
    crew: Callable[..., RankGroup], rank_task: Tasks
) -> None:
    ranks = crew(2)
    ranks.start()
    victim = _pids(ranks)[0]
    os.kill(victim, signal.SIGKILL)
    while not ranks._ranks[0].died("waiting"):
        time.sleep(0.01)
    assert ranks.run(rank_task()).status == "ok"


def test_ranks_on_one_host_listen_on_the_loopback_alone(crew: Callable[..., RankGroup], rank_task: Tasks) -> None:
    ranks = crew(2)
    assert ranks.run(rank_task()).status == "ok"
    sockets = [one for pid in _pids(ranks) for one in psutil.Process(pid).net_connections("tcp")]
    listening = {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN}
    assert listening
    assert all(ip_address(address).is_loopback for address in listening), listening


@pytest.mark.parametrize("after", [0.05, 0.5])
def test_a_rank_that_is_killed_while_it_starts_costs_no_task(
    crew: Callable[..., RankGroup], rank_task: Tasks, after: float
) -> None:
    ranks = crew(2)
    killed: list[int] = []

    def kill() -> None:
        while len(_pids(ranks)) < 2:
            time.sleep(0.005)
        time.sleep(after)
        killed.append(_pids(ranks)[1])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    ranks.start()
    killer.join()
    record = ranks.run(rank_task())
    assert (record.status, record.reason) == ("ok", "")
    assert killed[0] not in _pids(ranks)


def test_nothing_is_left_behind(rank_task: Tasks, crew: Callable[..., RankGroup]) -> None:
    ranks = crew(2)
    ranks.run(rank_task())
    pids = _pids(ranks)
    ranks.close()
    assert all(not _alive(pid) for pid in pids)
