"""Answers kept as they were sent, and marks by which a browser knows that it has them already."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock

from starlette.requests import Request
from starlette.responses import Response

MOST_BYTES = 64 << 20


@dataclass
class _Page:
    lock: Lock = field(default_factory=Lock)
    body: bytes | None = None


class Rendered:
    """A key has to say all that an answer depends on: the address, and what the store has. Those that were asked for
    last are kept."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._lock = Lock()
        self._pages: OrderedDict[Hashable, _Page] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Who comes second waits for who came first."""
        with self._lock:
            page = self._pages.setdefault(key, _Page())
            self._pages.move_to_end(key)
        try:
            with page.lock:
                if page.body is None:
                    page.body = make()
                return page.body
        finally:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        with self._lock:
            size = 0
            for key in reversed(list(self._pages)):
                size += len(self._pages[key].body or b"")
                if size > self._most or (self._pages[key].body is None and not self._pages[key].lock.locked()):
                    del self._pages[key]


def answered(request: Request, body: bytes, kind: str) -> Response:
    """With its mark; only that it is the same where the browser has it."""
    mark = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    had = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if mark in had:
        return Response(status_code=304, headers={"etag": mark})
    return Response(body, headers={"etag": mark}, media_type=kind)
