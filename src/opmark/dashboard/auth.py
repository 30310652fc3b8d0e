"""Checks every request before it is answered: host, length of the address, origin and token; login and headers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from urllib.parse import parse_qs

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opmark.api.push import is_loopback
from opmark.dashboard.endpoint import RequestRefused, read_body
from opmark.dashboard.navigation import address
from opmark.dashboard.response import page_response, problem_response
from opmark.errors import InvalidParameter
from opmark.report.text import printable

# The login form: a user enters the token once, and gets a cookie with a random session id.

LONGEST_FORM, MOST_FIELDS = 16 << 10, 10
FORM_WITHIN = 10.0
"""Seconds for receiving a login form, whose sender has no token yet."""


async def show_login(request: Request) -> Response:
    target = _local_path(request.query_params.get("next", "/"))
    access: AccessPolicy = request.app.state.access
    if access.token is None or access.allows(request.headers, session_of(request)):
        return RedirectResponse(target, 303)
    return page_response(request, "login.html", next=target, wrong=False)


async def log_in(request: Request) -> Response:
    form = await _read_form(request)
    target, access = _local_path(form.get("next", ["/"])[0]), request.app.state.access
    if not access.is_token(form.get("token", [""])[0].strip()):
        wrong = page_response(request, "login.html", 401, next=target, wrong=True)
        if await request.app.state.login_limits.wait():
            return wrong
        raise too_many_wrong()
    answer = RedirectResponse(target, 303)
    # TLS may end at a proxy, so that only the origin, which the browser sends, says whether the page came by https.
    secure = request.headers.get("origin", "").startswith("https://")
    name = cookie_of(request)
    answer.set_cookie(name, access.begin_session(), SESSION_SECONDS, httponly=True, samesite="strict", secure=secure)
    return answer


async def _read_form(request: Request) -> dict[str, list[str]]:
    try:
        with request.app.state.login_limits.form(), anyio.fail_after(FORM_WITHIN):
            body = await read_body(request, LONGEST_FORM)
        return parse_qs(body.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
    except TimeoutError:
        raise RequestRefused(408, f"the form did not arrive within {FORM_WITHIN:g} seconds", "send it again") from None
    except ValueError:
        raise RequestRefused(400, f"the form has more than {MOST_FIELDS} fields") from None


async def log_out(request: Request) -> Response:
    request.app.state.access.end_session(session_of(request))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(cookie_of(request), httponly=True, samesite="strict")
    return answer


def _local_path(path: str) -> str:
    """Return a path of this server, or `/` for a link to somewhere else."""
    ours = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if ours and len(path) < 2000 else "/"


ROUTES = [
    Route("/login", show_login, methods=["GET"]),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
]


# Access to the dashboard: tokens, sessions, host names, and the security headers for browsers.

SHORTEST_TOKEN = 16
LONGEST_TOKEN = 4096
SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 1000
COOKIE = "opmark_session"
"""Prefix of the cookie's name. Browsers keep cookies by host, so that the port follows to tell servers apart."""
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::\d{1,5})?", re.ASCII)
"""Matches a name or address with an optional port, and nothing that could be part of a path."""

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # `no-referrer` would hide the origin of a form
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


def check_token(token: str | None) -> str | None:
    """Check the length and the characters of a token; errors never quote it."""
    if token is None:
        return None
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN:
        raise InvalidParameter(
            f"token: expected {SHORTEST_TOKEN} to {LONGEST_TOKEN} characters, got {len(token)}",
            "`python -c 'import secrets; print(secrets.token_urlsafe(32))'` makes one",
        )
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidParameter("token: expected printable ASCII without spaces", "letters, digits, - and _ are safe")
    return token


def host_of(header: str) -> str:
    """Return the name in a Host header without its port; empty for an invalid header."""
    found = _HOST.fullmatch(header)
    return (found[1] or found[2]).lower() if found else ""


def cookie_name(port: int) -> str:
    return f"{COOKIE}_{port}"


@dataclass
class AccessPolicy:
    """Lets requests in that have the token, or a session that was begun with it."""

    token: str | None = None
    hosts: frozenset[str] | None = LOCAL
    """Accepted names in Host headers; None accepts any. They prevent DNS rebinding: otherwise a page of another server
    could point its own name to this machine and read the store."""
    _sessions: OrderedDict[bytes, float] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def knows_host(self, header: str) -> bool:
        name = host_of(header)
        return name in self.hosts if self.hosts is not None else bool(name or not header)

    def is_token(self, text: str) -> bool:
        """Compare hashes, which have one length, so that the time of the comparison reveals nothing."""
        return self.token is not None and hmac.compare_digest(_hash(text), _hash(self.token))

    def allows(self, headers: Mapping[str, str], session: str) -> bool:
        return self.token is None or self.has_token(headers) or self._has_session(session)

    def has_token(self, headers: Mapping[str, str]) -> bool:
        kind, _, token = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.is_token(token.strip())

    def begin_session(self) -> str:
        """Begin a session and return its random id."""
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[_hash(made)] = time.monotonic() + SESSION_SECONDS
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return made

    def end_session(self, session: str) -> None:
        with self._lock:
            self._sessions.pop(_hash(session), None)

    def _has_session(self, session: str) -> bool:
        with self._lock:
            until = self._sessions.get(_hash(session))
        return until is not None and time.monotonic() < until


def hosts_for(host: str, allowed: Iterable[str]) -> frozenset[str] | None:
    """Return the accepted names: on loopback only those of this machine; elsewhere any, unless some are allowed."""
    named = frozenset(host_of(one) or one.lower() for one in allowed)
    if is_loopback(host):
        return LOCAL | named | {host.lower()}
    return named | LOCAL | {host.lower()} if named else None


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


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


class LoginLimits:
    """Delays wrong tokens and limits the logins at once, so that a guesser cannot block the server."""

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
            raise RequestRefused(503, "too many log in at once", "wait a few seconds, then try again", wait=5)
        self._forms += 1
        try:
            yield
        finally:
            self._forms -= 1


class Guard:
    """Refuses requests or passes them to the application, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, access: AccessPolicy, login_limits: LoginLimits, store_name: str = "") -> None:
        self.app, self.access, self.login_limits, self.store_name = app, access, login_limits, store_name

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

        refusal = await self._find_refusal(request)
        await (refusal or self.app)(scope, receive, with_headers)

    async def _find_refusal(self, request: Request) -> Response | None:
        """Return the response that refuses a request; None if it is accepted."""
        headers, path = request.headers, request.scope["path"]  # the path that is routed, which headers cannot change
        if not self.access.knows_host(headers.get("host", "")):
            return problem_response(request, _strange_host(headers))
        if len(request.scope["raw_path"] or b"") + len(request.scope["query_string"]) > LONGEST_ADDRESS:
            return problem_response(request, RequestRefused(414, f"the address is longer than {LONGEST_ADDRESS} bytes"))
        if request.method == "POST" and not _same_origin(headers):
            return problem_response(request, RequestRefused(403, "this was sent by a page of another origin"))
        if path == OPEN or path.startswith(OPEN_BELOW) or self.access.allows(headers, session_of(request)):
            return None
        if "authorization" in headers:
            return await self._refuse_slowly(
                request, RequestRefused(401, "the token is wrong", "see `opmark serve --help`")
            )
        if path.startswith("/api/") or request.method not in ("GET", "HEAD"):
            needed = RequestRefused(401, "a token is needed", "send it as `Authorization: Bearer TOKEN`")
            return problem_response(request, needed, {"www-authenticate": "Bearer"})
        query = request.scope["query_string"].decode("latin-1")
        return RedirectResponse(address("/login", next=f"{path}?{query}" if query else path), 303)

    async def _refuse_slowly(self, request: Request, refused: RequestRefused) -> Response:
        if await self.login_limits.wait():
            return problem_response(request, refused, {"www-authenticate": "Bearer"})
        return problem_response(request, too_many_wrong())

    def _add_headers(self, headers: MutableHeaders) -> None:
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("cache-control", "no-store" if self.access.token else "no-cache")


def too_many_wrong() -> RequestRefused:
    return RequestRefused(429, "too many wrong tokens at once", "wait a second, then try again", wait=1)


def cookie_of(request: Request) -> str:
    """Return the cookie's name for the port that this server listens at, also behind a proxy."""
    return cookie_name((request.scope.get("server") or ("", 0))[1] or 0)


def session_of(request: Request) -> str:
    return request.cookies.get(cookie_of(request), "")


def _strange_host(headers: Headers) -> RequestRefused:
    host = headers.get("host", "")
    return RequestRefused(
        421, f"this server does not answer to the name `{printable(host_of(host) or host)[:100]}`",
        "`opmark serve --allow-host NAME` allows a name",
    )  # fmt: skip


def _same_origin(headers: Headers) -> bool:
    """Whether a form comes from a page of this server; only browsers send an origin."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")
