"""Receives runs of other machines from `opmark push`, with a token and within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from opmark.dashboard.answers import json_response, problem_response
from opmark.dashboard.bodies import read_body
from opmark.dashboard.limits import LIMITS
from opmark.dashboard.problems import Refused
from opmark.dashboard.uploads import receive
from opmark.schema.pushed import PATH

DEFAULT_LIMIT = LIMITS.wire
SECONDS, SLOWEST = 60.0, 100 << 10
"""Seconds for any upload, and the bytes of the largest upload that add one more second."""
MOST, STORED = 16, 2
"""Uploads that are received at once, and that are unpacked and stored at once; each takes memory and one of the
threads that make pages."""
COME_AGAIN = 5
"""Seconds after which a refused client may try again."""


class Arrivals:
    def __init__(self) -> None:
        self._here = 0
        self.storing = asyncio.Semaphore(STORED)

    @property
    def full(self) -> bool:
        return self._here >= MOST

    @contextmanager
    def one(self) -> Iterator[None]:
        self._here += 1
        try:
            yield
        finally:
            self._here -= 1


async def upload(request: Request) -> Response:
    """Store an upload; answer 201 if something was new, 200 if nothing was, 503 if too many come at once."""
    state = request.app.state
    if state.door.token is None:
        raise Refused(403, "this server takes no runs: it has no token", "start it with --token-file or $OPMARK_TOKEN")
    if not state.door.has_token(request.headers):
        raise Refused(401, "a token is needed", "send it as `Authorization: Bearer TOKEN`")
    arrivals: Arrivals = state.arrivals
    if arrivals.full:
        busy = Refused(503, f"{MOST} uploads are under way already", f"push it again in {COME_AGAIN} seconds")
        return problem_response(request, busy, {"retry-after": str(COME_AGAIN)})
    with arrivals.one():
        body = await _body(request, state.max_upload)
        limits = replace(LIMITS, wire=state.max_upload, unpacked=max(LIMITS.unpacked, state.max_upload))
        async with arrivals.storing:
            received = await run_in_threadpool(receive, state.reader.db, body, limits)
    return json_response(received, 201 if received.begun or received.new else 200)


async def _body(request: Request, limit: int) -> bytes:
    seconds = SECONDS + limit / SLOWEST
    try:
        with anyio.fail_after(seconds):
            return await read_body(request, limit)
    except TimeoutError:
        raise Refused(408, f"the upload was not here within {seconds:.0f} seconds", "send it again") from None


__all__ = ["DEFAULT_LIMIT", "PATH", "Arrivals", "upload"]
