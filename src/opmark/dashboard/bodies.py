"""Reads the bodies of requests in pieces, and never beyond a limit."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request

from opmark.dashboard.problems import Refused


async def read_body(request: Request, limit: int) -> bytes:
    told = request.headers.get("content-length", "0").lstrip("0")
    if told.isdecimal() and (len(told) > len(str(limit)) or int(told) > limit):  # int() refuses thousands of digits
        raise _too_much(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > limit:
                raise _too_much(limit)
            pieces.append(piece)
    except ClientDisconnect:
        raise Refused(400, "the body ended before it was complete", "send it again") from None
    return b"".join(pieces)


def _too_much(limit: int) -> Refused:
    return Refused(413, f"the body is larger than {limit} bytes", "`opmark serve --max-upload` says how much it takes")
