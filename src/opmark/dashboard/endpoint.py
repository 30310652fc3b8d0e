"""Endpoint: one address of the dashboard, as a page and as JSON. The table of endpoints is the whole dashboard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from opmark.dashboard.reading import Reader


@dataclass(frozen=True)
class Endpoint:
    path: str
    """Path of the page, as in `/runs/{run}`; JSON is at `/api` + path. Names in braces are fields of `asked`."""
    view: Callable[[Reader, Any], Struct]
    """Makes the answer from (reader, asked). It may raise `UnknownName` (404) and other `UserError`s (400)."""
    asked: type[Struct]
    """Parameters of the address: those of the path first, then the query, whose fields all have defaults. Values are
    converted (`"2"` to 2) and checked by their annotations (`msgspec.Meta` for limits)."""
    answer: type[Struct]
    """The answer. The page is made from it alone, so that JSON has everything that pages show."""
    template: str
    """File in `dashboard/templates`, which gets `answer` and `asked`. Empty if there is only JSON."""
    title: str
    summary: str
    """For the OpenAPI document."""
    ahead: Callable[[Reader], object] | None = None
    """Work that makes the first answer quick, done after the start while the server is idle."""
    of_runs: tuple[str, ...] = ()
    """Fields of `asked` that name the runs of an answer, if it depends on these runs alone: such an answer is cached
    until they change, or a run is added or renamed."""
    api: str = ""
    """Path of the JSON behind `/api`, if it is not `path`."""

    @property
    def json_path(self) -> str:
        return f"/api{self.api or self.path}"
