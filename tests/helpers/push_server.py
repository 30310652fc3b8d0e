"""A server of a test that takes uploads, and misbehaves when told to; standard library only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from opmark.dashboard.endpoint import RequestRefused, problem_of
from opmark.dashboard.uploads.store import receive

TOKEN = "a-token-for-tests-0123456789"

Answer = tuple[int, dict[str, str], bytes]
"""(status, headers, body)"""


class Taking:
    """What it was asked, and what it answers: what `first` holds, then what a dashboard would."""

    def __init__(self, db: Path) -> None:
        self.db = db
        self.url = ""
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.first: list[Callable[[Any], Answer | None]] = []
        """Each is called once, with the handler; None: it has done something else with the connection."""

    def answer(self, handler: BaseHTTPRequestHandler) -> Answer | None:
        self.asked.append((handler.path, {name.lower(): value for name, value in handler.headers.items()}))
        if self.first:
            return self.first.pop(0)(handler)
        body = handler.rfile.read(int(handler.headers["content-length"]))
        if handler.headers["authorization"] != f"Bearer {TOKEN}":
            return 401, {}, b'{"error": "the token is wrong", "hint": "see `opmark serve --help`"}'
        try:
            return 201, {}, msgspec.json.encode(receive(self.db, body))
        except RequestRefused as refused:
            return refused.status, {}, msgspec.json.encode(problem_of(refused))


@contextmanager
def taking(db: Path) -> Iterator[Taking]:
    told = Taking(db)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = told.answer(self)
            if answer is None:
                self.close_connection = True
                return
            status, headers, body = answer
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
