"""Receives runs of other machines from `opmark push`, with a token and within limits, and stores them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from opmark.dashboard.endpoint import RequestRefused, read_body
from opmark.dashboard.response import json_response, problem_response
from opmark.dashboard.uploads.reader import read_upload
from opmark.errors import StoreError
from opmark.schema.options import PathLike
from opmark.schema.upload import PushReply
from opmark.store.limits import LIMITS, Limits
from opmark.store.protocol import StoreUnreachable
from opmark.store.sql import open_sql
from opmark.store.transfer import IdConflict, store_upload

DEFAULT_LIMIT = LIMITS.wire
SECONDS, SLOWEST = 60.0, 100 << 10
"""Seconds for any upload, and the bytes of the largest upload that add one more second."""
MOST, STORED = 16, 2
"""Uploads that are received at once, and that are unpacked and stored at once; each takes memory and one of the
threads that make pages."""
_CHALLENGE = {"www-authenticate": "Bearer"}
COME_AGAIN = 5
"""Seconds after which a refused client may try again."""


class UploadSlots:
    """Counts the uploads under way, and limits how many are stored at once."""

    def __init__(self) -> None:
        self._count = 0
        self.storing = asyncio.Semaphore(STORED)

    @property
    def full(self) -> bool:
        return self._count >= MOST

    @contextmanager
    def take(self) -> Iterator[None]:
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


async def upload(request: Request) -> Response:
    """Store an upload; answer 201 if something was new, 200 if nothing was, 503 if too many come at once."""
    state = request.app.state
    if state.access.token is None:
        none = RequestRefused(
            403 if "authorization" in request.headers else 401,
            "this server takes no runs: it has no token",
            "start it with --token-file or $OPMARK_TOKEN",
        )
        return problem_response(request, none, {} if none.status == 403 else _CHALLENGE)
    if not state.access.has_token(request.headers):
        needed = RequestRefused(401, "a token is needed", "send it as `Authorization: Bearer TOKEN`")
        return problem_response(request, needed, _CHALLENGE)
    upload_slots: UploadSlots = state.upload_slots
    if upload_slots.full:
        busy = RequestRefused(503, f"{MOST} uploads are under way already", f"push it again in {COME_AGAIN} seconds")
        return problem_response(request, busy, {"retry-after": str(COME_AGAIN)})
    with upload_slots.take():
        body = await _read_upload_body(request, state.max_upload)
        limits = replace(LIMITS, wire=state.max_upload, unpacked=max(LIMITS.unpacked, state.max_upload))
        async with upload_slots.storing:
            received = await run_in_threadpool(receive, state.reader.db, body, limits)
    return json_response(received, 201 if received.begun or received.new else 200)


async def _read_upload_body(request: Request, limit: int) -> bytes:
    seconds = SECONDS + limit / SLOWEST
    try:
        with anyio.fail_after(seconds):
            return await read_body(request, limit)
    except TimeoutError:
        raise RequestRefused(408, f"the upload did not arrive within {seconds:.0f} seconds", "send it again") from None


log = logging.getLogger("opmark.dashboard")

_TAKEN, _BROKEN, _BUSY = 409, 500, 503
"""HTTP statuses."""


def receive(db: PathLike | None, body: bytes, limits: Limits = LIMITS) -> PushReply:
    """Check and store the body of an upload, compressed or not: all of it or nothing.

    Raise `RequestRefused` with its status: 413 if it is too large, 422 if it is invalid, 409 if another run or record
    has the same id, 503 if the store cannot be written just now, 500 if it cannot be written at all.
    """
    found = read_upload(body, limits)
    try:
        with closing(open_sql(db, create=True)) as store:
            return store_upload(store, found)
    except IdConflict as taken:
        raise RequestRefused(_TAKEN, taken.message, taken.hint) from None
    except StoreUnreachable as lost:
        log.warning("an upload of run %s has to wait: %s", found.run.id, lost.message)
        raise RequestRefused(
            _BUSY, "the store of this dashboard cannot be written just now", "nothing was stored; push it again later"
        ) from None
    except StoreError as error:
        log.error("an upload of run %s cannot be stored: %s", found.run.id, error.message)
        raise RequestRefused(
            _BROKEN, "the store of this dashboard cannot be written", "nothing was stored; the server's log says why"
        ) from None
