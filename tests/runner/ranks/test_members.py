"""Rank 0's end of another rank's process, with a scripted other end."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from opmark.plugin.registry import backend
from opmark.runner.ranks import connection, rank_process
from opmark.runner.ranks.connection import (
    DOING,
    Death,
    ForwardLine,
    Greeting,
    RankConnection,
    Start,
    State,
    StateRequest,
    Stop,
    WorkerLine,
)
from opmark.runner.ranks.rank_process import AgentConnection, Inbox, RankLine, RankZero, RemoteRank
from opmark.runner.worker_process import WorkerDied

INFO = backend("numpy-cpu")


@pytest.fixture
def ends() -> Iterator[tuple[AgentConnection, RankConnection]]:
    """The post of rank 1, and the agent's end of its connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        agent = RankConnection(socket.create_connection(server.getsockname()))
        post = AgentConnection(RankConnection(server.accept()[0]), Greeting("1", 1, 2, host="node-b"))
    post.listen()
    with closing(agent), closing(post.connection):
        yield post, agent


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def heard(inbox: Inbox) -> RankLine:
    return inbox.get(timeout=20)


def test_orders_go_there_and_words_come_back(ends: tuple[AgentConnection, RankConnection]) -> None:
    post, agent = ends
    inbox = Inbox()
    member = RemoteRank(post, inbox)
    assert (member.rank, member.where, member.gone) == (1, "rank 1 on node-b", "")
    member.start(INFO, 3, {"RANK": "1"}, 7)
    assert agent.receive(connection.from_rank_zero) == Start(1, "numpy-cpu", 3, {"RANK": "1"})
    agent.send(WorkerLine(1, '{"hello": 1}'))
    assert heard(inbox) == RankLine(1, 7, b'{"hello": 1}')
    member.send(b'{"do": 1}')
    assert agent.receive(connection.from_rank_zero) == ForwardLine(1, '{"do": 1}')
    agent.send(WorkerLine(1, None))
    assert heard(inbox) == RankLine(1, 7, None)
    member.stop()
    assert agent.receive(connection.from_rank_zero) == Stop(1)


def test_words_of_an_earlier_worker_reach_nobody(ends: tuple[AgentConnection, RankConnection]) -> None:
    """Each crew counts its starts from 1, and all crews share the agent."""
    post, agent = ends
    inboxes = [Inbox(), Inbox()]
    first, second = (RemoteRank(post, inbox) for inbox in inboxes)
    first.start(INFO, 1, {}, 1)
    first.stop()
    second.start(INFO, 1, {}, 1)
    agent.send(WorkerLine(1, "late"))
    agent.send(Death(1, "error", "late"))
    agent.send(WorkerLine(2, "now"))
    assert heard(inboxes[1]) == RankLine(1, 1, b"now")
    assert second.died("waiting") is None
    with pytest.raises(queue.Empty):
        inboxes[0].get_nowait()


def test_a_death_says_what_was_being_done_and_a_new_start_forgets_it(
    ends: tuple[AgentConnection, RankConnection],
) -> None:
    post, agent = ends
    member = RemoteRank(post, Inbox())
    member.start(INFO, 1, {}, 1)
    agent.send(Death(1, "oom", f"killed while {DOING}, most likely", illegal=True))
    until(lambda: member.died("x"))
    death = member.died("running the task")
    assert isinstance(death, WorkerDied)
    assert (death.status, death.reason, death.illegal) == ("oom", "killed while running the task, most likely", True)
    with pytest.raises(WorkerDied) as caught:
        member.send(b"{}")
    assert caught.value.idle
    member.start(INFO, 1, {}, 2)
    assert member.died("starting") is None


def test_its_state_is_asked_for(ends: tuple[AgentConnection, RankConnection], monkeypatch: pytest.MonkeyPatch) -> None:
    post, agent = ends
    member = RemoteRank(post, Inbox())
    assert member.state() == ""
    member.start(INFO, 1, {}, 1)
    monkeypatch.setattr(rank_process, "_STATE_TIMEOUT", 0.1)
    assert member.state() == "not to be reached"
    agent.send(State(1, "late"))
    until(lambda: not member._states.empty())
    monkeypatch.setattr(rank_process, "_STATE_TIMEOUT", 20.0)
    monkeypatch.setattr(post, "send", lambda ask: agent.send(State(ask.process, "stopped")))
    assert member.state() == "stopped"
    assert [type(agent.receive(connection.from_rank_zero)) for _ in range(2)] == [Start, StateRequest]


def test_an_agent_that_is_gone_is_gone_for_all_that_comes(ends: tuple[AgentConnection, RankConnection]) -> None:
    post, agent = ends
    member = RemoteRank(post, Inbox())
    member.start(INFO, 1, {}, 1)
    agent.close()
    until(lambda: member.gone)
    assert member.gone == "rank 1 on node-b: its opmark closed the connection"
    death = member.died("running the task")
    assert death is not None
    assert (death.status, death.reason) == ("error", "its opmark closed the connection, while running the task")
    with pytest.raises(WorkerDied) as caught:
        member.send(b"{}")
    assert not caught.value.idle
    assert member.state() == ""
    member.stop()
    post.end(0, "")
    assert RemoteRank(post, Inbox()).gone == member.gone


def test_an_agent_that_talks_nonsense_is_gone(ends: tuple[AgentConnection, RankConnection]) -> None:
    post, agent = ends
    agent.send(Stop(1))  # which is for agents
    until(lambda: post.lost)
    assert "said what opmark does not say" in post.lost


def test_the_worker_of_rank_0_uses_the_way_by_which_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr("opmark.runner.ranks.connection.interface_of", {"10.0.0.5": "eth0"}.get)
    monkeypatch.setattr(
        "opmark.runner.ranks.rank_process.WorkerProcess", lambda info, threads, environ, **rest: given.update(environ)
    )
    member = RankZero("node-a", "10.0.0.5", Inbox())
    member.start(INFO, 1, {"RANK": "0"}, 1)
    assert member.where == "rank 0 on node-a"
    assert given == {"RANK": "0", "GLOO_SOCKET_IFNAME": "eth0"}
