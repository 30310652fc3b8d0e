"""Errors as HTTP status and message, for pages and JSON, without a traceback."""

from __future__ import annotations

from msgspec import Struct

from opmark.errors import OpmarkError, StoreError, UnknownName


class Problem(Struct, frozen=True, omit_defaults=True):
    error: str
    hint: str = ""
    id: str = ""
    """Number of a defect of the server, under which the log has its traceback."""


class Refused(OpmarkError):
    """A refused request: not allowed, too large, or too many at once."""

    def __init__(self, status: int, message: str, hint: str | None = None, *, wait: int = 0) -> None:
        """`wait`: seconds after which the client may try again."""
        super().__init__(message, hint)
        self.status, self.wait = status, wait


def status_of(error: OpmarkError) -> int:
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, UnknownName):
        return 404
    return 503 if isinstance(error, StoreError) else 400


def problem_of(error: OpmarkError) -> Problem:
    return Problem(error.message, error.hint or "")
