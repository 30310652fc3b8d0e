"""Access to the dashboard: tokens, sessions, host names, and the security headers for browsers."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from opmark.api.tokens import is_loopback
from opmark.errors import InvalidParameter

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


def checked_token(token: str | None) -> str | None:
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
class Door:
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

    def is_token(self, given: str) -> bool:
        """Compare hashes, which have one length, so that the time of the comparison reveals nothing."""
        return self.token is not None and hmac.compare_digest(_hash(given), _hash(self.token))

    def lets_in(self, headers: Mapping[str, str], session: str) -> bool:
        return self.token is None or self.has_token(headers) or self._has_session(session)

    def has_token(self, headers: Mapping[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.is_token(given.strip())

    def begin(self) -> str:
        """Begin a session and return its random id."""
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[_hash(made)] = time.monotonic() + SESSION_SECONDS
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return made

    def end(self, session: str) -> None:
        with self._lock:
            self._sessions.pop(_hash(session), None)

    def _has_session(self, given: str) -> bool:
        with self._lock:
            until = self._sessions.get(_hash(given))
        return until is not None and time.monotonic() < until


def hosts_for(host: str, allowed: Iterable[str]) -> frozenset[str] | None:
    """Return the accepted names: on loopback only those of this machine; elsewhere any, unless some are allowed."""
    named = frozenset(host_of(one) or one.lower() for one in allowed)
    if is_loopback(host):
        return LOCAL | named | {host.lower()}
    return named | LOCAL | {host.lower()} if named else None


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
