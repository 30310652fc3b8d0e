"""Responses as JSON below /api and as pages elsewhere, a cache of rendered answers, and entity tags for browsers."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from opmark.dashboard.endpoint import HttpProblem, RequestRefused, problem_of, status_of
from opmark.dashboard.pages.template import page
from opmark.errors import OpmarkError

MOST_BYTES = 64 << 20


@dataclass
class _Page:
    lock: Lock = field(default_factory=Lock)
    body: bytes | None = None


class ResponseCache:
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


def tagged_response(request: Request, body: bytes, kind: str) -> Response:
    """Return a response with its entity tag; 304 if the browser has it already."""
    mark = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if mark in known:
        return Response(status_code=304, headers={"etag": mark})
    return Response(body, headers={"etag": mark}, media_type=kind)


encode_json = msgspec.json.Encoder().encode


def is_api(request: Request) -> bool:
    """Whether a request is for JSON, by the routed path, because headers can change the rest of the address."""
    path: str = request.scope["path"]
    return path.startswith("/api/") or path == "/api"


def json_response(answer: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode_json(answer), status, headers, "application/json")


def page_response(
    request: Request, template: str, status: int = 200, headers: Mapping[str, str] | None = None, **context: Any
) -> Response:
    return HTMLResponse(page_body(request, template, **context), status, headers)


def page_body(request: Request, template: str, **context: Any) -> bytes:
    state = request.app.state if "app" in request.scope else None
    has_token = bool(state and state.access.token)
    return page(template, has_token=has_token, path=request.scope["path"], **context).encode()


def problem_response(
    request: Request, error: OpmarkError, headers: Mapping[str, str] | None = None, status: int | None = None
) -> Response:
    wait = {"retry-after": str(error.wait)} if isinstance(error, RequestRefused) and error.wait else {}
    return error_response(request, problem_of(error), status or status_of(error), {**wait, **(headers or {})})


def error_response(
    request: Request, problem: HttpProblem, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    if is_api(request):
        return json_response(problem, status, headers)
    return page_response(request, "problem.html", status, headers, problem=problem, code=status)
