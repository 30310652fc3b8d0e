"""Downloads: a run as a table, or as a report in one file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from opmark.api.export import export
from opmark.dashboard.endpoint import asked
from opmark.dashboard.reader import Reader

Format = Literal["csv", "json", "jsonl", "md"]
_KINDS: dict[str, str] = {
    "csv": "text/csv",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "md": "text/markdown",
    "html": "text/html",
}


class Exported(Struct, frozen=True):
    run: str
    format: Format


class Reported(Struct, frozen=True):
    run: str


class File(Struct, frozen=True):
    name: str
    body: bytes


@dataclass(frozen=True)
class Download:
    path: str
    view: Callable[[Reader, Any], File]
    asked: type[Struct]
    kinds: tuple[str, ...]
    """Possible media types."""
    summary: str


def exported(reader: Reader, what: Exported) -> File:
    run = reader.run(what.run)
    (content,) = export(run.id, format=what.format, db=reader.db).values()
    return File(f"{run.id}.{what.format}", _bytes(content))


def reported(reader: Reader, what: Reported) -> File:
    from opmark.api.report import make_report

    run = reader.run(what.run)
    return File(f"{run.id}.html", _bytes(make_report(run.id, db=reader.db)))


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


DOWNLOADS = (
    Download("/runs/{run}/export/{format}", exported, Exported, tuple(_KINDS.values())[:4], "A run as a table."),
    Download("/runs/{run}/report.html", reported, Reported, ("text/html",), "A run as a report in one file."),
)


def routes() -> list[Route]:
    return [Route(download.path, _as_file(download)) for download in DOWNLOADS]


def _as_file(download: Download) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        what = asked(download.asked, request.path_params, request.query_params.multi_items())
        file = download.view(request.app.state.reader, what)
        name = re.sub(r"[^\w.-]", "_", file.name, flags=re.ASCII)
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(file.body, headers=headers, media_type=_KINDS[name.rpartition(".")[2]])

    return answer
