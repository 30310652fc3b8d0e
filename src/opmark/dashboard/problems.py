"""What went wrong -> its status and what is told of it, as a page or as JSON. Never a traceback."""

from __future__ import annotations

from msgspec import Struct

from opmark.errors import OpmarkError, StoreError, UnknownName


class Problem(Struct, frozen=True, omit_defaults=True):
    error: str
    hint: str = ""
    id: str = ""
    """Of a defect of the server: the log has more under it."""


class Refused(OpmarkError):
    """An answer of another kind than a wrong parameter: not allowed, too much, not now."""

    def __init__(self, status: int, message: str, hint: str | None = None, *, wait: int = 0) -> None:
        """`wait`: seconds after which it may be otherwise."""
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
