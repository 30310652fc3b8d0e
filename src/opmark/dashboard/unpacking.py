"""Splits the bytes of an upload into lines, within limits of memory, whatever they inflate to."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator

from opmark.dashboard.limits import Limits
from opmark.dashboard.problems import Refused
from opmark.units import count_bytes

_GZIP = b"\x1f\x8b"
_STEP = 1 << 16
"""Input bytes per step."""
_MOST = 1 << 20
"""Inflated bytes per step."""
_AGAIN = "send it again: `opmark push` does"

INVALID, TOO_LARGE = 422, 413
"""HTTP statuses."""


class Lines:
    """Yields lines one by one, with their number from 1 on and a checksum of all that were read."""

    def __init__(self, body: bytes, limits: Limits) -> None:
        if len(body) > limits.wire:
            raise too_large("the upload", limits.wire)
        self.number = 0
        """Number of the line that was read last."""
        self._lines = _split(_inflated(body, limits) if body[:2] == _GZIP else _sliced(body, limits), limits)
        self._sum = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._sum.hexdigest()

    def next(self, what: str) -> bytes:
        """Return the next line without its end; `what` names the expected line in error messages."""
        line = next(self._lines, None)
        if line is None:
            raise Refused(INVALID, f"the upload ends after line {self.number}: expected {what}", _AGAIN)
        self.number += 1
        self._sum.update(line + b"\n")
        return line

    def check_end(self) -> None:
        if next(self._lines, None) is not None:
            raise Refused(INVALID, f"line {self.number + 1}: something stands behind the end of the upload")


def too_large(what: str, limit: int) -> Refused:
    return Refused(TOO_LARGE, f"{what} is larger than {count_bytes(limit)}", "nothing was stored")


def _sliced(body: bytes, limits: Limits) -> Iterator[bytes]:
    if len(body) > limits.unpacked:
        raise too_large("the upload, unpacked,", limits.unpacked)
    for start in range(0, len(body), _STEP):
        yield body[start : start + _STEP]


def _inflated(body: bytes, limits: Limits) -> Iterator[bytes]:
    """Inflate in steps, and stop at the limit, because a small body may inflate to the size of a disk."""
    inflating, total = zlib.decompressobj(31), 0
    for start in range(0, len(body), _STEP):
        if inflating.eof:
            break
        for some in _steps(inflating, body[start : start + _STEP]):
            total += len(some)
            if total > limits.unpacked:
                raise too_large("the upload, unpacked,", limits.unpacked)
            yield some
    if not inflating.eof:
        raise Refused(INVALID, "the upload is cut off: its gzip does not end", _AGAIN)
    if inflating.unused_data or start + _STEP < len(body):
        raise Refused(INVALID, "something stands behind the end of the gzip")


def _steps(inflating: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yield what some bytes inflate to; after a full step there may be more."""
    while True:
        try:
            some = inflating.decompress(data, _MOST)
        except zlib.error as error:
            raise Refused(INVALID, f"the upload cannot be inflated: {error}", _AGAIN) from None
        yield some
        data = inflating.unconsumed_tail
        if inflating.eof or (not data and len(some) < _MOST):
            return


def _split(blocks: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for block in blocks:
        *whole, rest = block.split(b"\n")
        for line in whole:
            if size + len(line) > limits.line:
                raise too_large("a line of the upload", limits.line)
            yield b"".join([*held, line])
            held, size = [], 0
        held.append(rest)
        size += len(rest)
        if size > limits.line:
            raise too_large("a line of the upload", limits.line)
    if size:
        raise Refused(INVALID, "the upload is cut off: its last line does not end", _AGAIN)
