"""The process of a rank above 0, with a scripted rank 0."""

from __future__ import annotations

import platform
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from worker_fixtures import add_to_path

from opmark.errors import UserError
from opmark.plugin import registry
from opmark.runner import instruction_set
from opmark.runner.clocks import ClockLocks
from opmark.runner.ranks import agent as agents
from opmark.runner.ranks import connection
from opmark.runner.ranks.agent import serve, serve_rank_zero
from opmark.runner.ranks.authentication import admit_agent, read_secret
from opmark.runner.ranks.connection import (
    DOING,
    Challenge,
    Death,
    End,
    ForwardLine,
    Greeting,
    RankConnection,
    Start,
    State,
    StateRequest,
    Stop,
    Welcome,
    WorkerLine,
)
from opmark.runner.ranks.job import JobRank
from opmark.schema import Case
from opmark.schema.messages import Hello, Joined, JoinGroup, Listening, decode_reply, encode
from opmark.version import VERSION

COMMAND = "the same"


class Conducted:
    """An agent in a thread, and rank 0's end of its connection."""

    def __init__(self, server: socket.socket) -> None:
        self.said: list[str] = []
        self.code: int | UserError | None = None
        port = server.getsockname()[1]
        self._place = JobRank("torchrun", 1, 2, 0, 1, "127.0.0.1", port, "MASTER_PORT")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.link = RankConnection(server.accept()[0])

    def admit(self) -> Greeting:
        """Let it in, as rank 0 does."""
        return admit_agent(self.link, read_secret())

    def _serve(self) -> None:
        try:
            self.code = serve(self._place, COMMAND, self.said.append, ClockLocks())
        except UserError as error:
            self.code = error

    def ended(self) -> int | UserError | None:
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), "it waits for ever"
        return self.code

    def receive(self, kind: type[Any]) -> Any:
        """The next message, which has to be of that kind."""
        found = self.link.receive(connection.from_agent)
        assert isinstance(found, kind), found
        return found

    def started(self, process: int = 1, backend: str = "lines-cpu", **environ: str) -> Hello:
        self.link.send(Start(process, backend, 1, environ))
        word = self.receive(WorkerLine)
        assert word.process == process
        return msgspec.json.decode(word.line, type=Hello)


@pytest.fixture
def arriving() -> Iterator[Conducted]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = Conducted(server)
    with closing(found.link):
        yield found
    found.ended()


@pytest.fixture
def conducted(arriving: Conducted) -> Conducted:
    arriving.admit()
    arriving.link.send(Welcome("node-a"))
    return arriving


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The backend `lines-cpu` is installed."""
    add_to_path(Path(__file__).parent / "stranger", monkeypatch)
    yield
    registry.forget()


def worker() -> psutil.Process:
    (found,) = [one for one in psutil.Process().children() if one.cmdline()[-1:] == ["rank"]]
    return found


def test_it_says_who_it_is(arriving: Conducted) -> None:
    found = arriving.admit()
    assert found == Greeting(VERSION, 1, 2, 0, 1, platform.node(), COMMAND, found.nonce)
    assert len(found.nonce) == 64


@pytest.mark.parametrize("code", [0, 1, 130])
def test_it_ends_as_it_is_told(conducted: Conducted, code: int) -> None:
    conducted.link.send(End(code, "so it went"))
    conducted.link.close()
    assert conducted.ended() == code
    assert conducted.said == ["so it went"]


def test_after_a_failure_it_waits_for_the_end_of_rank_0_but_not_for_ever(
    conducted: Conducted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_LINGER", 0.2)
    conducted.link.send(End(1, "so it went"))
    assert conducted.ended() == 1


def test_without_rank_0_it_ends(conducted: Conducted) -> None:
    conducted.link.close()
    assert conducted.ended() == 1
    assert conducted.said == [
        f"rank 1 on {platform.node()} ends: rank 0 on node-a is gone, its opmark closed the connection"
    ]


def refused(agent: Conducted, *said: bytes) -> UserError:
    """What it ends with after it was told this. It has started nothing."""
    agent.link._connection.sendall(b"".join(line + b"\n" for line in said))
    error = agent.ended()
    assert isinstance(error, UserError)
    assert [one for one in psutil.Process().children() if one.cmdline()[-1:] == ["rank"]] == []
    assert "MASTER_PORT" in error.message
    return error


START = connection.encode_message(Start(1, "lines-cpu", 1, {}))


@pytest.mark.parametrize(
    "said",
    [b"220 mail.example ESMTP\r", b'{"type":"Welcome","host":"node-a"}', START],
    ids=["mail", "as in 0.8", "start"],
)
def test_something_else_that_listens_there_is_said_and_not_obeyed(
    arriving: Conducted, stranger: None, said: bytes
) -> None:
    assert "it is not the opmark of rank 0" in refused(arriving, said, START).message


def test_a_rank_0_without_the_secret_is_not_obeyed(arriving: Conducted, stranger: None) -> None:
    """Whoever holds the port first can say what rank 0 says, but proves nothing."""
    challenge = connection.encode_message(Challenge("drawn", "0" * 64))
    error = refused(arriving, challenge, b'{"type":"Welcome","host":"node-a"}', START)
    assert "has another secret than this rank, or none" in error.message
    assert "OPMARK_SECRET" in str(error.hint)


def test_an_unsigned_line_is_not_obeyed_after_the_greeting(arriving: Conducted, stranger: None) -> None:
    arriving.admit()
    assert "said a line that it has not signed" in refused(arriving, b'{"type":"Welcome","host":"x"}', START).message


def test_a_backend_that_is_not_there_is_its_first_word(conducted: Conducted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert conducted.started(1, "nobodys-cpu").unavailable == "no backend named `nobodys-cpu`"
    monkeypatch.setattr(agents, "why_missing", lambda info: f"{info.framework} is not installed")
    hello = conducted.started(2, "torch-cpu")
    assert hello.unavailable == "torch is not installed"
    assert hello.environment.facts["machine"] == platform.node()
    conducted.link.send(End(0, ""))


def test_a_process_that_cannot_be_started_is_a_death(conducted: Conducted, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("opmark.runner.ranks.rank_process.WorkerProcess", fail)
    conducted.link.send(Start(1, "numpy-cpu", 1, {}))
    assert conducted.receive(Death) == Death(1, "error", "its process cannot be started: no more processes")
    conducted.link.send(End(0, ""))


def test_a_worker_gets_what_it_is_sent_and_what_counts_on_this_host(
    conducted: Conducted, stranger: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instruction_set, "recall", lambda name: "AVX2")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    sent = {"RANK": "1", "LOCAL_RANK": "0", instruction_set.VARIABLE: "AVX512_CORE"}
    assert conducted.started(**sent).unavailable is None
    found = worker().environ()
    names = ("RANK", "LOCAL_RANK", instruction_set.VARIABLE, "GLOO_SOCKET_IFNAME")
    assert [found.get(name) for name in names] == ["1", "0", "AVX2", "lo"]
    conducted.link.send(End(0, ""))


def test_commands_reach_the_worker_and_its_replies_come_back(conducted: Conducted, stranger: None) -> None:
    conducted.started()
    conducted.link.send(ForwardLine(1, encode(JoinGroup(0, 1, "127.0.0.1", 0, 5.0)).decode()))
    listening, joined = (decode_reply(conducted.receive(WorkerLine).line) for _ in range(2))
    assert isinstance(listening, Listening)
    assert joined == Joined("lines")
    conducted.link.send(End(0, ""))


def test_a_stopped_worker_is_said_to_be_and_ended(conducted: Conducted, stranger: None) -> None:
    conducted.started()
    process = worker()
    process.suspend()
    while process.status() != psutil.STATUS_STOPPED:  # a signal takes its time
        time.sleep(0.01)
    conducted.link.send(StateRequest(1))
    assert conducted.receive(State) == State(1, "stopped")
    conducted.link.send(Stop(1))
    process.wait(timeout=60)
    conducted.link.send(End(0, ""))


def test_how_a_worker_died_comes_before_its_end(conducted: Conducted, stranger: None) -> None:
    conducted.started()
    worker().kill()
    death = conducted.receive(Death)
    assert (death.process, death.status) == (1, "killed")
    assert DOING in death.reason
    assert conducted.receive(WorkerLine) == WorkerLine(1, None)
    conducted.link.send(End(0, ""))


def test_what_is_for_an_earlier_worker_does_not_touch_the_next(conducted: Conducted, stranger: None) -> None:
    conducted.started(1)
    first = worker()
    conducted.started(2)
    assert not first.is_running()
    conducted.link.send(Stop(1))
    conducted.link.send(ForwardLine(1, "nonsense"))
    conducted.link.send(StateRequest(2))
    assert conducted.receive(State) == State(2, "")
    assert worker().is_running()
    conducted.link.send(End(0, ""))


def test_a_worker_ends_with_its_agent(conducted: Conducted, stranger: None) -> None:
    conducted.started()
    process = worker()
    conducted.link.close()
    assert conducted.ended() == 1
    assert not process.is_running()


def test_where_one_worker_is_enough_a_rank_above_0_has_nothing_to_do() -> None:
    alone = Case.of("matmul", {"M": 1, "N": 1, "K": 1, "dtype": "float32"}, "forward")
    place = JobRank("torchrun", 1, 2, 0, 1, "127.0.0.1", 1, "MASTER_PORT")
    assert serve_rank_zero(place, [alone], lambda line: None, ClockLocks()) == 0
