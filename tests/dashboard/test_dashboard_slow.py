"""Clients that never finish their headers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import uvicorn

from opmark.dashboard import slow
from opmark.dashboard.app import application


@pytest.fixture
def connect_to(db: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], socket.socket]]:
    """A server that gives up after a fifth of a second, instead of many."""
    monkeypatch.setattr(slow, "HEADERS_WITHIN", 0.2)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(db), http=slow.Bounded, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield lambda: socket.create_connection(listening.getsockname()[:2], timeout=20)
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: loc"])
def test_half_a_request_is_not_waited_for(connect_to: Callable[[], socket.socket], sent: bytes) -> None:
    with connect_to() as client:
        client.sendall(sent)
        assert client.recv(1) == b""  # closed, and not after the 20 seconds of this test


def test_who_is_done_in_time_is_answered_and_may_ask_again(connect_to: Callable[[], socket.socket]) -> None:
    with connect_to() as client, client.makefile("rb") as answers:
        for _ in range(2):
            client.sendall(b"GET /assets/theme.js HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b"200" in answers.readline()
            headers = dict(line.lower().split(b": ", 1) for line in iter(answers.readline, b"\r\n"))
            assert len(answers.read(int(headers[b"content-length"]))) > 0
        client.sendall(b"GET / HT")
        assert answers.read(1) == b""
