"""Every error that opmark raises on purpose.

OpmarkError
├── UserError             a mistake of the user: one message, a hint, exit code 2
│   ├── UnknownName       there is no operator, backend, suite, run ... of that name; suggests the nearest one
│   ├── InvalidFile       a file that cannot be read as what it should be; says where in the file
│   ├── InvalidParameter  a parameter that is unknown, missing, of the wrong type or out of its domain
│   └── StoreError        a store that cannot be opened, read or written
└── TaskError             ends one task, never the run: it becomes a record
    ├── OutOfMemory       record status `oom`
    ├── RequestTimeout    record status `timeout`: a client waits for an answer that does not come
    ├── TimerFailed       a device's clock cannot be read; another one takes its place, and the record says so
    ├── Unsupported       record status `skipped`
    └── WrongResult       record status `wrong`

An OSError that names a path is a message on the command line too. Anything else that reaches the top is a defect of
opmark and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

# Number of names that fit into a hint.
_FEW = 12


class OpmarkError(Exception):
    """A message for a person, and a hint about what to do next."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class UserError(OpmarkError):
    pass


class UnknownName(UserError):
    """`kind` is what was looked for, in words: "operator", "backend", "suite". `meant` are the names to suggest, where
    that is not the nearest one."""

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        listing: str | None = None,
        meant: str | Sequence[str] | None = None,
    ) -> None:
        known = list(known)
        near = [meant] if isinstance(meant, str) else list(meant or filter(None, [nearest(name, known)]))
        if not near and listing is None and len(known) <= _FEW:
            listing_hint = f"known: {', '.join(known)}" if known else ""
        else:
            listing_hint = f"`{listing}` lists them all" if listing else ""
        suggestion = f"did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else ""
        super().__init__(f"no {kind} named `{name}`", " ".join(filter(None, (suggestion, listing_hint))) or None)


class InvalidFile(UserError):
    pass


class InvalidParameter(UserError):
    pass


class StoreError(UserError):
    pass


class TaskError(OpmarkError):
    pass


class OutOfMemory(TaskError):
    pass


class RequestTimeout(TaskError):
    pass


class TimerFailed(TaskError):
    pass


class Unsupported(TaskError):
    pass


class WrongResult(TaskError):
    """An output is wrong; `verification` (schema.Verification) says how far off it is, where that is known."""

    verification: Any = None


@contextmanager
def in_stage(stage: str) -> Iterator[None]:
    """Mark what is raised inside with the stage of its task (schema.TaskStage), where the worker cannot know it. Any
    exception is marked, because a framework or a function of the user may raise any, and goes on as it is."""
    try:
        yield
    except Exception as error:
        error.stage = stage  # type: ignore[attr-defined]
        raise


def one_line(error: OpmarkError) -> str:
    """Return the message and the hint of an error as the reason of a record."""
    return f"{error.message}; {error.hint}" if error.hint else error.message


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` was most likely meant to be, or None."""
    by_folded = {
        item.casefold(): item for item in reversed([*known])
    }  # the first of two names that differ only in case wins
    matches = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None
