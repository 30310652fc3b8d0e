"""What stands before every answer: who asks, by which name, how long an address may be; and the headers of all."""

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
"""What is seen without a token: nothing of the store."""
WAIT, MOST_WAITING = 0.3, 8
"""Seconds that a wrong token costs, and how many may be waiting at once; a wrong one beyond these is told to come
again, at once. A right one is let in however many wait: nobody can lock others out."""
MOST_FORMS = 50
"""Forms of the login that are being read at once: far below the connections there are, so that who sends them slowly
takes them from nobody else."""


class Patience:
    """Guessing takes time; but nobody can make the server wait for long, or keep many waiting."""

    def __init__(self) -> None:
        self._waiting = self._forms = 0

    async def wait(self) -> bool:
        """False where too many are waiting already."""
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
            await self.app(scope, receive, send)  # the beginning and the end of the server; there are no sockets
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
        """What is answered instead, if that is to be."""
        headers, path = request.headers, request.scope["path"]  # what is routed; a header has no part in it
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
    """The name of the cookie of this server: of the port that it listens at, whatever a proxy is asked for by."""
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
    """A browser says from which page a form came; programs say nothing."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")
