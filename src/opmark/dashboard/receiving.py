"""Runs of other machines, sent by `opmark push`: only with a token, and no more than is allowed."""

from __future__ import annotations

from dataclasses import replace

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from opmark.dashboard.answers import json_response
from opmark.dashboard.bodies import read_body
from opmark.dashboard.limits import LIMITS
from opmark.dashboard.problems import Refused
from opmark.dashboard.uploads import receive
from opmark.schema.pushed import PATH

DEFAULT_LIMIT = LIMITS.wire


async def upload(request: Request) -> Response:
    """201 where something was new, 200 where all of it was there already."""
    state = request.app.state
    if state.door.token is None:
        raise Refused(403, "this server takes no runs: it has no token", "start it with --token-file or $OPMARK_TOKEN")
    if not state.door.has_token(request.headers):
        raise Refused(401, "a token is needed", "send it as `Authorization: Bearer TOKEN`")
    body = await read_body(request, state.max_upload)
    limits = replace(LIMITS, wire=state.max_upload, unpacked=max(LIMITS.unpacked, state.max_upload))
    received = await run_in_threadpool(receive, state.reader.db, body, limits)
    return json_response(received, 201 if received.begun or received.new else 200)


__all__ = ["DEFAULT_LIMIT", "PATH", "upload"]
