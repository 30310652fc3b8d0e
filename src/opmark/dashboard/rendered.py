"""A cache of rendered answers, and entity tags by which a browser knows that it has one already."""

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
    """Keeps the answers that were used last. A key has to contain all that an answer depends on: the address and the
    state of the store."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._lock = Lock()
        self._pages: OrderedDict[Hashable, _Page] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return an answer; a second request for the same one waits until the first has made it."""
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
    """Return a response with its entity tag; 304 if the browser has it already."""
    mark = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    had = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if mark in had:
        return Response(status_code=304, headers={"etag": mark})
    return Response(body, headers={"etag": mark}, media_type=kind)
