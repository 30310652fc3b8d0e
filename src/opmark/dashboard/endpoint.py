"""Endpoint: one thing that can be asked for, as a page and as JSON. The table of them is the whole of the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from opmark.dashboard.reading import Reader


@dataclass(frozen=True)
class Endpoint:
    path: str
    """The page, as in `/runs/{run}`; the same as JSON is at `/api` + path. Names in braces are fields of `asked`."""
    view: Callable[[Reader, Any], Struct]
    """(reader, asked) -> answer. Errors are `UnknownName` (404) and other `UserError`s (400)."""
    asked: type[Struct]
    """What the address may say: path parameters first, then the query. Every field of the query has a default; values
    are converted (`"2"` to 2) and checked by their annotations (`msgspec.Meta` for limits)."""
    answer: type[Struct]
    """What is answered: the page is made of this and of nothing else, so that JSON has everything that pages show."""
    template: str
    """In `dashboard/templates`; it gets `answer` and `asked`. Empty where there is only JSON."""
    title: str
    summary: str
    """For the OpenAPI document."""
    ahead: Callable[[Reader], object] | None = None
    """What makes its first answer a quick one: done when the server starts, while nobody asks for anything."""
    of_runs: tuple[str, ...] = ()
    """What of `asked` names the runs that an answer is of, where it is of these alone: as long as nothing of them is
    new, and no run comes or gets another name, it stays the same."""
    api: str = ""
    """Where it is found as JSON behind `/api`, if not at `path`."""

    @property
    def json_path(self) -> str:
        return f"/api{self.api or self.path}"
