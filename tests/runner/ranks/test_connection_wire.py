"""The language of the ranks' processes, over a real pair of sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.runner.ranks import connection
from opmark.runner.ranks.connection import (
    Alive,
    Challenge,
    ConnectionLost,
    Death,
    End,
    ForwardLine,
    Greeting,
    LineSeal,
    Proof,
    RankConnection,
    Refusal,
    Start,
    State,
    StateRequest,
    Stop,
    Welcome,
    WorkerLine,
)

Pair = tuple[RankConnection, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A link, and the bare other end of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        mine, _ = server.accept()
    with closing(RankConnection(mine)) as link, other:
        other.settimeout(20)
        yield link, other


@pytest.mark.parametrize(
    ("message", "decoder"),
    [
        (Greeting("1.2", 1, 2, 0, 1, "node-b", "abc"), connection.greeting),
        (Challenge("drawn", "signed"), connection.challenge),
        (Proof("signed"), connection.proof),
        (Welcome("node-a"), connection.reception),
        (Refusal("no"), connection.reception),
        (Start(1, "torch-cpu", 2, {"RANK": "1"}), connection.from_rank_zero),
        (ForwardLine(1, '{"a": "\\n"}'), connection.from_rank_zero),
        (Stop(1), connection.from_rank_zero),
        (StateRequest(1), connection.from_rank_zero),
        (End(1, "über"), connection.from_rank_zero),
        (WorkerLine(1, "x" * 300_000), connection.from_agent),
        (WorkerLine(1, None), connection.from_agent),
        (Death(2, "oom", "killed", True), connection.from_agent),
        (State(2, "stopped"), connection.from_agent),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_told_is_heard(message: msgspec.Struct, decoder: msgspec.json.Decoder[object]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = RankConnection(socket.create_connection(server.getsockname()))
        mine = RankConnection(server.accept()[0])
    with closing(mine), closing(other):
        telling = threading.Thread(target=mine.send, args=(message,))
        telling.start()
        assert other.receive(decoder) == message
        telling.join()


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r\n",
        b"\n",
        b"{}\n",
        b"\xff\xfe\n",
        b'{"type": "Nobody"}\n',
        b'{"type": "WorkerLine", "process": "one", "line": ""}\n',
        b'{"type": "Start", "process": 1, "backend": "b", "threads": 1, "environ": {}}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_not_of_this_language_ends_the_link(pair: Pair, line: bytes) -> None:
    link, other = pair
    other.sendall(line)
    with pytest.raises(ConnectionLost, match="said what opmark does not say"):
        link.receive(connection.from_agent)


def test_a_line_without_an_end_is_not_collected_for_ever(pair: Pair) -> None:
    link, other = pair

    def flood() -> None:
        with suppress(OSError):
            while True:
                other.sendall(b"x" * 65536)

    threading.Thread(target=flood, daemon=True).start()
    with pytest.raises(ConnectionLost, match="more than 65536 bytes"):
        link.receive(connection.greeting, connection.MAX_FIRST_LINE)
    link.close()


def test_several_messages_in_one_piece_and_one_in_several(pair: Pair) -> None:
    link, other = pair
    other.sendall(b'{"type":"Stop","process":1}\n{"type":"Stop","process":2}\n{"type":"St')
    assert [link.receive(connection.from_rank_zero).process for _ in range(2)] == [1, 2]
    other.sendall(b'op","process":3}\n')
    assert link.receive(connection.from_rank_zero) == Stop(3)


@given(st.lists(st.binary()))
def test_signed_lines_are_taken_in_their_order(lines: list[bytes]) -> None:
    signing, checking = LineSeal(b"key"), LineSeal(b"key")
    assert [checking.check(signing.sign(line)) for line in lines] == lines


def changed(signed: list[bytes], how: str) -> list[bytes]:
    first, second = signed
    return {
        "left out": [second],
        "said again": [first, first],
        "in another order": [second, first],
        "another word": [first[:-1] + b"!", second],
        "another signature": [b"0" + first[1:] if first[:1] != b"0" else b"1" + first[1:], second],
        "no signature": [first.partition(b" ")[2], second],
        "another key": [LineSeal(b"other").sign(b"one")],
        "empty": [b""],
    }[how]


@pytest.mark.parametrize(
    "how",
    ["left out", "said again", "in another order", "another word", "another signature", "no signature", "another key",
     "empty"],
)  # fmt: skip
def test_a_line_that_was_changed_on_the_way_ends_the_link(how: str) -> None:
    signing, checking = LineSeal(b"key"), LineSeal(b"key")
    lines = changed([signing.sign(b"one"), signing.sign(b"two")], how)
    with pytest.raises(ConnectionLost, match="has not signed"):
        list(map(checking.check, lines))


def test_an_older_or_newer_greeting_is_understood(pair: Pair) -> None:
    link, other = pair
    other.sendall(b'{"type":"Greeting","version":"99","rank":1,"mood":"good"}\n')
    assert link.receive(connection.greeting).version == "99"


def test_a_sign_of_life_is_no_message(pair: Pair) -> None:
    link, other = pair
    other.sendall(b'{"type":"Alive"}\n{"type":"Stop","process":1}\n')
    assert link.receive(connection.from_rank_zero) == Stop(1)


def test_signs_of_life_come_by_themselves(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_ALIVE_EVERY", 0.01)
    link, other = pair
    link.stay_alive()
    with other.makefile("rb") as lines:
        assert [msgspec.json.decode(next(lines), type=Alive) for _ in range(3)] == [Alive()] * 3


def test_whoever_is_silent_for_too_long_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SILENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        link = RankConnection(server.accept()[0])
    with other, closing(link), pytest.raises(ConnectionLost, match="has not been heard of for 100 ms"):
        link.receive(connection.from_agent)


def test_whoever_takes_nothing_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SILENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        link = RankConnection(server.accept()[0])
    with other, closing(link):
        with pytest.raises(ConnectionLost, match="has taken nothing"):
            link.send(WorkerLine(1, "x" * (64 << 20)))
        with pytest.raises(ConnectionLost):  # half of a line is out: nothing can follow it
            link.send(Stop(1))


def test_the_end_of_the_other_is_told_apart(pair: Pair) -> None:
    link, other = pair
    other.close()
    with pytest.raises(ConnectionLost, match="closed the connection"):
        link.receive(connection.from_agent)


def test_closing_wakes_whoever_hears(pair: Pair) -> None:
    link, _ = pair
    lost: list[ConnectionLost] = []

    def hear() -> None:
        try:
            link.receive(connection.from_agent)
        except ConnectionLost as loss:
            lost.append(loss)

    hearing = threading.Thread(target=hear)
    hearing.start()
    time.sleep(0.05)
    link.close()
    hearing.join(timeout=60)
    assert len(lost) == 1


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_an_address_of_ipv4_is_told_as_such() -> None:
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        other = socket.create_connection(("127.0.0.1", server.getsockname()[1]))
        with closing(RankConnection(server.accept()[0])) as link, other:
            assert link.own_address == "127.0.0.1"


def test_nobody_at_the_other_end_is_said_after_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(TimeoutError, match="refused"):
        connection.connect("127.0.0.1", port, time.monotonic() + 0.5)
