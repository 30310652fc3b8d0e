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
from opmark.dashboard.endpoint import parse_query
from opmark.dashboard.reader import Reader

Format = Literal["csv", "json", "jsonl", "md"]
_KINDS: dict[str, str] = {
    "csv": "text/csv",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "md": "text/markdown",
    "html": "text/html",
}


class ExportQuery(Struct, frozen=True):
    run: str
    format: Format


class ReportQuery(Struct, frozen=True):
    run: str


class File(Struct, frozen=True):
    name: str
    body: bytes


@dataclass(frozen=True)
class Download:
    path: str
    view: Callable[[Reader, Any], File]
    query: type[Struct]
    kinds: tuple[str, ...]
    """Possible media types."""
    summary: str


def export_run(reader: Reader, query: ExportQuery) -> File:
    run = reader.run(query.run)
    (content,) = export(run.id, format=query.format, db=reader.db).values()
    return File(f"{run.id}.{query.format}", _bytes(content))


def report_run(reader: Reader, query: ReportQuery) -> File:
    from opmark.api.report import make_report

    run = reader.run(query.run)
    return File(f"{run.id}.html", _bytes(make_report(run.id, db=reader.db)))


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


DOWNLOADS = (
    Download("/runs/{run}/export/{format}", export_run, ExportQuery, tuple(_KINDS.values())[:4], "A run as a table."),
    Download("/runs/{run}/report.html", report_run, ReportQuery, ("text/html",), "A run as a report in one file."),
)


def routes() -> list[Route]:
    return [Route(download.path, _as_file(download)) for download in DOWNLOADS]


def _as_file(download: Download) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        query = parse_query(download.query, request.path_params, request.query_params.multi_items())
        file = download.view(request.app.state.reader, query)
        name = re.sub(r"[^\w.-]", "_", file.name, flags=re.ASCII)
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(file.body, headers=headers, media_type=_KINDS[name.rpartition(".")[2]])

    return answer
