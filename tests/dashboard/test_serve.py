"""Clients that never finish their headers, or their body."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import uvicorn

from opmark.dashboard import auth
from opmark.dashboard import serve as serve_module
from opmark.dashboard.app import application
from opmark.dashboard.auth import AccessPolicy
from opmark.dashboard.uploads import store

TOKEN = "a-token-of-enough-characters"


@pytest.fixture
def connect_to(db: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], socket.socket]]:
    """A server that gives up after a fifth of a second, instead of many."""
    monkeypatch.setattr(serve_module, "HEADERS_WITHIN", 0.2)
    monkeypatch.setattr(auth, "FORM_WITHIN", 0.2)
    monkeypatch.setattr(store, "SECONDS", 0.2)
    monkeypatch.setattr(store, "SLOWEST", 1e12)
    app = application(db, access=AccessPolicy(TOKEN))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, http=serve_module.TimeLimitedProtocol, log_config=None, lifespan="off"))
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


@pytest.mark.parametrize(
    "head",
    [
        "POST /login HTTP/1.1\r\ncontent-type: application/x-www-form-urlencoded",
        f"POST /api/runs HTTP/1.1\r\nauthorization: Bearer {TOKEN}",
    ],
)
def test_half_a_body_is_not_waited_for(connect_to: Callable[[], socket.socket], head: str) -> None:
    with connect_to() as client, client.makefile("rb") as answers:
        client.sendall(f"{head}\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\ntoken=".encode())
        assert b"408" in answers.readline()
        assert answers.read().endswith((b"}", b">", b"\n"))  # and then it is closed


@pytest.mark.timeout(60)
@pytest.mark.parametrize("asked", ["GET /login", "POST /api/runs"])
def test_a_body_that_goes_on_after_its_answer_is_ended(connect_to: Callable[[], socket.socket], asked: str) -> None:
    with connect_to() as client, client.makefile("rb") as answers:
        client.sendall(f"{asked} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n".encode())
        assert answers.readline().startswith(b"HTTP/1.1")
        client.settimeout(0.05)
        assert any(_is_ended(client) for _ in range(400))  # twenty seconds, if nobody ends it


def _is_ended(client: socket.socket) -> bool:
    """Whether the server has closed the connection."""
    try:
        client.sendall(b"x")
        return client.recv(65536) == b""
    except TimeoutError:
        return False
    except (BrokenPipeError, ConnectionResetError):
        return True
