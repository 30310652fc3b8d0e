"""Rank 0 waits for the others: who is let in, who is refused, and what a run over several processes tells them."""

from __future__ import annotations

import platform
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from opmark.errors import UserError
from opmark.plugin.registry import backend
from opmark.runner.ranks import connection, launcher
from opmark.runner.ranks.authentication import NotAuthenticated, prove_to_rank_zero, read_secret
from opmark.runner.ranks.connection import (
    Challenge,
    ConnectionLost,
    End,
    Greeting,
    Proof,
    RankConnection,
    Refusal,
    Welcome,
)
from opmark.runner.ranks.job import JobRank
from opmark.runner.ranks.launcher import (
    RankLauncher,
    RemoteRankLauncher,
    adopt_ranks,
    await_agents,
    command_id,
    local_ranks,
    start_ranks,
    takes_ranks,
)
from opmark.runner.ranks.rank_process import AgentConnection
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case
from opmark.version import VERSION

COMMAND = "the same"
HERE = platform.node()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: int = server.getsockname()[1]
    return found


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(launcher, "ARRIVAL_TIMEOUT", 10.0)
    yield
    while launcher._open:
        launcher._open.pop().close()


class Agents:
    """Other ranks, as bare connections that say what they are told to."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self._port = port
        self._stack = stack

    def await_agents(self, size: int = 2) -> Callable[[], Any]:
        """What rank 0 finds of them."""

        def found() -> dict[int, AgentConnection]:
            posts = await_agents(place(self._port, size), COMMAND)
            for post in posts.values():
                self._stack.callback(post.connection.close)
            return posts

        return beside(found)

    def connect(self) -> RankConnection:
        link = connection.connect("127.0.0.1", self._port, time.monotonic() + 20)
        return self._stack.enter_context(closing(link))

    def come(self, said: Greeting | bytes) -> RankConnection:
        """One that says this; with a greeting, it also proves who it is."""
        link = self.connect()
        if isinstance(said, bytes):
            link._connection.sendall(said)
        else:
            prove_to_rank_zero(link, said, read_secret())
        return link


@pytest.fixture
def agents(port: int) -> Iterator[Agents]:
    with ExitStack() as stack:
        yield Agents(port, stack)


def place(port: int, size: int = 2, **others: Any) -> JobRank:
    return JobRank("torchrun", 0, size, None, None, "127.0.0.1", port, "MASTER_PORT")._replace(**others)


def greeting(rank: int = 1, size: int = 2, **others: Any) -> Greeting:
    fields = {"host": "node-b", "command": COMMAND, "version": VERSION, "nonce": "drawn", **others}
    return Greeting(rank=rank, size=size, **fields)


def beside(work: Callable[[], Any]) -> Callable[[], Any]:
    """Runs it in a thread; gives what it came to, or raises what it raised."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(timeout=30)
        assert found, "it waits for ever"
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    return result


def test_all_ranks_are_let_in_in_any_order(port: int, agents: Agents) -> None:
    posts = agents.await_agents(4)
    links = [agents.come(greeting(rank, 4)) for rank in (3, 1, 2)]
    assert [link.receive(connection.reception) for link in links] == [Welcome(HERE)] * 3
    found = posts()
    assert sorted(found) == [1, 2, 3]
    assert found[2].where == "rank 2 on node-b"


REFUSED = {
    "another version": (
        greeting(version="0.0.1"),
        f"rank 1 on node-b has opmark 0.0.1, rank 0 on {HERE} has {VERSION}",
    ),
    "another size": (greeting(size=3), f"rank 1 on node-b is one of 3, rank 0 on {HERE} one of 2"),
    "another command": (greeting(command="x"), "rank 1 on node-b was started with another command"),
    "another rank 0": (greeting(0), "rank 0 on node-b: expected ranks from 1 to 1"),
    "a rank beyond": (greeting(5), "rank 5 on node-b: expected ranks from 1 to 1"),
    "the version alone": (Greeting("0.0", nonce="drawn"), f"opmark 0.0, rank 0 on {HERE} has {VERSION}"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_who_does_not_fit_is_refused_on_both_sides(port: int, agents: Agents, which: str) -> None:
    said, expected = REFUSED[which]
    posts = agents.await_agents()
    answer = agents.come(said).receive(connection.reception)
    with pytest.raises(UserError) as caught:
        posts()
    assert isinstance(answer, Refusal)
    assert answer.reason == caught.value.message
    assert expected in answer.reason


def test_a_rank_that_is_there_twice_ends_it_for_all(port: int, agents: Agents) -> None:
    posts = agents.await_agents(3)
    first = agents.come(greeting(1, 3))
    assert first.receive(connection.reception) == Welcome(HERE)
    second = agents.come(greeting(1, 3, host="node-c")).receive(connection.reception)
    with pytest.raises(UserError, match="rank 1 on node-c is there already: rank 1 on node-b came first"):
        posts()
    assert isinstance(second, Refusal)
    assert first.receive(connection.from_rank_zero) == End(2, second.reason)


DEEP = b'{"type":"Greeting","version":"0.0","x":' + b"[" * 60_000 + b"]" * 3 + b"}\n"
STRANGERS = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"",
    b"x" * 200_000,
    DEEP,
    b'{"type":"Greeting"}\n',
    b'{"type":"Greeting","version":"0.0","rank":-7}\n',
    b'{"type":"Greeting","version":"0.0","rank":1,"size":2,"nonce":"n"}\n{"type":"Proof","proof":"\\u00e4"}\n',
    connection.encode_message(greeting(0)) + b"\n",
    connection.encode_message(greeting()) + b'\n{"type":"Proof","proof":""}\n',
]


@pytest.mark.parametrize("said", STRANGERS)
def test_a_stranger_keeps_nobody_from_coming(port: int, agents: Agents, said: bytes) -> None:
    posts = agents.await_agents()
    agents.come(said)
    agents.come(greeting())
    assert sorted(posts()) == [1]


def test_many_whose_lines_cannot_be_decoded_keep_nobody_from_coming(
    port: int, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "_MAX_STRANGERS", 1)
    posts = agents.await_agents()
    for _ in range(5):
        agents.come(DEEP)
    agents.come(greeting())
    assert sorted(posts()) == [1]


def test_an_opmark_that_cannot_prove_who_it_is_is_told_so_and_ends_nothing(port: int, agents: Agents) -> None:
    posts = agents.await_agents()
    old = agents.connect()
    old.send(greeting(version="0.8.0", nonce=""))
    refusal = old.receive(connection.reception)
    assert isinstance(refusal, Refusal)
    assert refusal.reason.endswith("wants a proof that opmark 0.8.0 lacks")
    agents.come(greeting())
    assert sorted(posts()) == [1]


def test_another_secret_is_not_let_in_and_named_when_a_rank_is_missing(
    port: int, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "ARRIVAL_TIMEOUT", 3.0)
    posts = agents.await_agents()
    with closing(agents.connect()) as link, pytest.raises(NotAuthenticated, match="has another secret"):
        prove_to_rank_zero(link, greeting(), b"another secret of this user")
    with pytest.raises(UserError, match=r"not let in: 127\.0\.0\.1 closed the connection before") as caught:
        posts()
    assert "OPMARK_SECRET" in str(caught.value.hint)


def test_a_proof_of_another_connection_is_of_no_use(port: int, agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was overheard is said again: rank 0 has drawn another number."""
    posts = agents.await_agents(3)
    heard: list[Any] = []
    send = RankConnection.send

    def overheard(self: RankConnection, message: Any) -> None:
        heard.append(message)
        send(self, message)

    monkeypatch.setattr(RankConnection, "send", overheard)
    agents.come(greeting(1, 3)).receive(connection.reception)
    (said,) = [message for message in heard if isinstance(message, Proof)]
    again = agents.connect()
    again.send(greeting(1, 3))
    assert isinstance(again.receive(connection.challenge), Challenge)
    again.send(said)
    with pytest.raises(ConnectionLost):
        again.receive(connection.reception)
    agents.come(greeting(2, 3))
    assert sorted(posts()) == [1, 2]


def test_many_that_say_nothing_keep_nobody_from_coming_for_ever(
    port: int, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "_MAX_STRANGERS", 3)
    monkeypatch.setattr(launcher, "SILENCE", 0.5)
    posts = agents.await_agents()
    silent = [agents.connect() for _ in range(12)]
    agents.come(greeting())
    assert sorted(posts()) == [1]
    assert len(silent) == 12


def test_missing_ranks_are_named(port: int, agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "ARRIVAL_TIMEOUT", 3.0)
    posts = agents.await_agents(4)
    there = agents.come(greeting(2, 4))
    with pytest.raises(UserError) as caught:
        posts()
    assert "ranks 1, 3 of 4 did not come within 3.00 s (torchrun)" in caught.value.message
    assert str(port) in str(caught.value.hint)
    there.receive(connection.reception)
    assert there.receive(connection.from_rank_zero) == End(2, caught.value.message)


def test_a_port_in_use_is_named_with_who_wants_it_and_a_way_out(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)), pytest.raises(UserError) as caught:
        await_agents(place(port), COMMAND)
    assert f"port {port} on {HERE} is in use" in caught.value.message
    assert "MASTER_PORT" in caught.value.message
    assert "OPMARK_PORT" in str(caught.value.hint)


def test_a_host_that_nobody_knows_is_named(port: int) -> None:
    with pytest.raises(UserError, match=r"`nobody\.invalid`, is not known"):
        await_agents(place(port, host="nobody.invalid"), COMMAND)


def test_an_address_of_another_host_cannot_be_listened_on_by_one_host_alone(port: int) -> None:
    with pytest.raises(UserError, match=r"cannot listen on 192\.0\.2\.1"):
        await_agents(place(port, host="192.0.2.1", local_rank=0, local_size=2), COMMAND)


# What the others are told in the end.


def ended(
    port: int, agents: Agents, work: Callable[[RemoteRankLauncher], Any]
) -> tuple[RankConnection, End, Callable[[], Any]]:
    def whole() -> None:
        with adopt_ranks(place(port), COMMAND) as found:
            work(found)

    result = beside(whole)
    link = agents.come(greeting())
    link.receive(connection.reception)
    return link, link.receive(connection.from_rank_zero), result


def test_the_others_are_told_how_it_went(port: int, agents: Agents) -> None:
    link, end, result = ended(port, agents, lambda found: found.set_outcome(0, "stored"))
    assert end == End(0, "stored")
    result()
    with pytest.raises(ConnectionLost):
        link.receive(connection.from_rank_zero)


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UserError("no such store"), End(2, "rank 0: no such store")),
        (KeyboardInterrupt(), End(130, "rank 0 was interrupted")),
        (ZeroDivisionError(), End(1, "rank 0 failed: ZeroDivisionError")),
    ],
)
def test_the_others_are_told_of_every_error(port: int, agents: Agents, error: BaseException, expected: End) -> None:
    _, end, result = ended(port, agents, lambda found: _raise(error))
    assert end == expected
    with pytest.raises(type(error)):
        result()


def test_after_a_failure_the_others_wait_for_the_end_of_this_process(port: int, agents: Agents) -> None:
    """A launcher ends all when one fails: nobody may end before rank 0 has printed what it found."""
    link, end, result = ended(port, agents, lambda found: found.set_outcome(1, "one failed"))
    result()
    assert end == End(1, "one failed")
    link._connection.settimeout(0.3)
    with pytest.raises(ConnectionLost, match="has not been heard of"):
        link.receive(connection.from_rank_zero)
    with socket.create_server(("127.0.0.1", 0)) as server:  # the next one in this process lets go of them
        taken = server.getsockname()[1]
        with pytest.raises(UserError):
            await_agents(place(taken), COMMAND)
    with pytest.raises(ConnectionLost, match="closed"):
        link.receive(connection.from_rank_zero)


# Who is asked at all.


@pytest.fixture
def cases(rank_task: Callable[..., Any]) -> list[Case]:
    return [rank_task(ranks=2).case, rank_task(ranks=2, size=64).case]


def test_one_command_has_one_id_in_any_order(cases: list[Case]) -> None:
    assert command_id(cases) == command_id([*reversed(cases), cases[0]])
    assert command_id(cases) != command_id(cases[:1])


def test_without_a_launcher_or_ranks_nobody_is_waited_for(port: int, cases: list[Case]) -> None:
    alone = Case.of("matmul", {"M": 1, "N": 1, "K": 1, "dtype": "float32"}, "forward")
    assert takes_ranks([alone, *cases])
    assert not takes_ranks([alone])
    with start_ranks(None, cases) as found:
        assert type(found) is RankLauncher
    with start_ranks(place(port), [alone]) as found:
        assert type(found) is RankLauncher


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        (2, "4 ranks were started (torchrun), this case takes 2: --ranks 4 --group-size 2"),
        (3, "4 ranks were started (torchrun), this case takes 3: start 3 of them"),
        (8, "4 ranks were started (torchrun), this case takes 8: start 8 of them"),
    ],
)
def test_a_case_for_another_number_of_ranks_is_skipped(
    port: int, rank_task: Callable[..., Any], ranks: int, reason: str
) -> None:
    group = RemoteRankLauncher(place(port, 4), {}).group(backend("torch-cpu"), 1, ranks, WorkerOptions(5.0))
    assert str(group.start().unavailable).startswith(reason)
    record = group.run(rank_task(ranks=ranks))
    assert (record.status, record.reason) == ("skipped", group.start().unavailable)
    group.close()


# Which rank is which on its host, and how it is reached.


@pytest.fixture
def post() -> Iterator[Callable[..., AgentConnection]]:
    with ExitStack() as stack:

        def make(rank: int, **fields: Any) -> AgentConnection:
            mine, other = (stack.enter_context(end) for end in _pair())
            stack.enter_context(other)
            return AgentConnection(RankConnection(mine), greeting(rank, 4, **fields))

        yield make


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        return server.accept()[0], other


def test_a_launcher_tells_which_rank_is_which_on_its_host(post: Callable[..., AgentConnection]) -> None:
    posts = {rank: post(rank, local_rank=rank % 2, local_size=2) for rank in (1, 2, 3)}
    assert local_ranks(place(1, 4, local_rank=0, local_size=2), posts) == {0: (0, 2), 1: (1, 2), 2: (0, 2), 3: (1, 2)}


def test_without_that_they_are_counted_by_the_names_of_hosts(post: Callable[..., AgentConnection]) -> None:
    posts = {1: post(1), 2: post(2, host=HERE), 3: post(3)}
    assert local_ranks(place(1, 4), posts) == {0: (0, 2), 2: (1, 2), 1: (0, 2), 3: (1, 2)}


def test_ranks_of_this_host_use_the_interface_that_others_reach_it_by(
    post: Callable[..., AgentConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    posts = {1: post(1), 2: post(2)}
    addresses = {posts[1].connection: "127.0.0.1", posts[2].connection: "10.0.0.5"}
    monkeypatch.setattr(RankConnection, "own_address", property(lambda link: addresses[link]))
    monkeypatch.setattr(launcher, "interface_of", lambda address: {"10.0.0.5": "eth0"}[address])
    found = RemoteRankLauncher(place(1, 3, host="node-a"), posts)
    group = found.group(backend("torch-cpu"), 1, 3, WorkerOptions(5.0))
    home, near, far = group._ranks
    assert group._host == "node-a"
    assert vars(home)["_address"] == "10.0.0.5"
    assert vars(near)["_environ"] == {"GLOO_SOCKET_IFNAME": "eth0"}
    assert vars(far)["_environ"] == {}


def test_ranks_that_all_came_by_the_loopback_meet_there(post: Callable[..., AgentConnection]) -> None:
    """Whatever MASTER_ADDR says: what they listen on is closed to other hosts."""
    found = RemoteRankLauncher(place(1, 3, host=HERE), {1: post(1), 2: post(2)})
    assert found.group(backend("torch-cpu"), 1, 3, WorkerOptions(5.0))._host == "127.0.0.1"
