"""Checks every request before it is answered: host, length of the address, origin and token; and adds headers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opmark.dashboard.addresses import address
from opmark.dashboard.answers import problem_response
from opmark.dashboard.problems import Refused
from opmark.dashboard.security import HEADERS, Door, cookie_name, host_of
from opmark.report.plain import printable

log = logging.getLogger("opmark.dashboard")
LONGEST_ADDRESS = 4096
"""Bytes of path and query."""
OPEN, OPEN_BELOW = "/login", "/assets/"
"""Addresses that need no token; they show nothing of the store."""
WAIT, MOST_WAITING = 0.3, 8
"""Seconds of delay for a wrong token, and how many requests may wait at once; more are refused immediately. A right
token is never delayed, so that nobody can lock others out."""
MOST_FORMS = 50
"""Login forms that are read at once: far fewer than connections, so that slow senders cannot take them all."""


class Patience:
    """Delays wrong tokens, with limits, so that a guesser cannot block the server."""

    def __init__(self) -> None:
        self._waiting = self._forms = 0

    async def wait(self) -> bool:
        """Wait; return False at once if too many are waiting already."""
        if self._waiting >= MOST_WAITING:
            return False
        self._waiting += 1
        try:
            await asyncio.sleep(WAIT)
        finally:
            self._waiting -= 1
        return True

    @contextmanager
    def form(self) -> Iterator[None]:
        if self._forms >= MOST_FORMS:
            raise Refused(503, "too many log in at once", "wait a few seconds, then try again", wait=5)
        self._forms += 1
        try:
            yield
        finally:
            self._forms -= 1


class Guard:
    def __init__(self, app: ASGIApp, door: Door, patience: Patience, store_name: str = "") -> None:
        self.app, self.door, self.patience, self.store_name = app, door, patience, store_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)  # start and end of the server; there are no web sockets
            return
        request, path = Request(scope, receive), printable(scope["path"])

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message))
                log.info("%s %s %d", request.method, path, message["status"])
            await send(message)

        refused = await self._refused(request)
        await (refused or self.app)(scope, receive, with_headers)

    async def _refused(self, request: Request) -> Response | None:
        """Return the response that refuses a request; None if it is accepted."""
        headers, path = request.headers, request.scope["path"]  # the path that is routed, which headers cannot change
        if not self.door.knows_host(headers.get("host", "")):
            return problem_response(request, _strange_host(headers))
        if len(request.scope["raw_path"] or b"") + len(request.scope["query_string"]) > LONGEST_ADDRESS:
            return problem_response(request, Refused(414, f"the address is longer than {LONGEST_ADDRESS} bytes"))
        if request.method == "POST" and not _same_origin(headers):
            return problem_response(request, Refused(403, "this was sent by a page of another origin"))
        if path == OPEN or path.startswith(OPEN_BELOW) or self.door.lets_in(headers, session_of(request)):
            return None
        if "authorization" in headers:
            return await self._slowly(request, Refused(401, "the token is wrong", "see `opmark serve --help`"))
        if path.startswith("/api/") or request.method not in ("GET", "HEAD"):
            needed = Refused(401, "a token is needed", "send it as `Authorization: Bearer TOKEN`")
            return problem_response(request, needed, {"www-authenticate": "Bearer"})
        query = request.scope["query_string"].decode("latin-1")
        return RedirectResponse(address("/login", next=f"{path}?{query}" if query else path), 303)

    async def _slowly(self, request: Request, refused: Refused) -> Response:
        if await self.patience.wait():
            return problem_response(request, refused, {"www-authenticate": "Bearer"})
        return problem_response(request, too_many_wrong())

    def _add_headers(self, headers: MutableHeaders) -> None:
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("cache-control", "no-store" if self.door.token else "no-cache")


def too_many_wrong() -> Refused:
    return Refused(429, "too many wrong tokens at once", "wait a second, then try again", wait=1)


def cookie_of(request: Request) -> str:
    """Return the cookie's name for the port that this server listens at, also behind a proxy."""
    return cookie_name((request.scope.get("server") or ("", 0))[1] or 0)


def session_of(request: Request) -> str:
    return request.cookies.get(cookie_of(request), "")


def _strange_host(headers: Headers) -> Refused:
    told = headers.get("host", "")
    return Refused(
        421, f"this server is not asked for as `{printable(host_of(told) or told)[:100]}`",
        "`opmark serve --allow-host NAME` allows a name",
    )  # fmt: skip


def _same_origin(headers: Headers) -> bool:
    """Whether a form comes from a page of this server; only browsers send an origin."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")
