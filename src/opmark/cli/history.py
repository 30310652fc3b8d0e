"""opmark history"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.api.requests import HistoryRequest, talk
from opmark.cli.options import takes
from opmark.cli.output import console, write_out
from opmark.errors import UnknownName
from opmark.units import count_noun

if TYPE_CHECKING:
    from opmark.schema.history import Histories

FORMATS = ("table", "md", "json")
_IN_A_FILE = 1000
"""Columns of a table that goes to a file."""
_MANY = 500
"""Number of cases from which on a message says how many there are, because it takes long."""


@takes(HistoryRequest)
def history(
    request: HistoryRequest,
    format: Annotated[str, typer.Option(help="table, md, json.")] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per series, as --format json.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it to this file.")] = None,
    fail_on_change: Annotated[
        bool,
        typer.Option(
            help="Exit with 1 if the newest change of a series, or its newest runs, made it slower; --since leaves "
            "out what is older."
        ),
    ] = False,
) -> None:
    from opmark.api.history import history_request

    if format not in FORMATS:
        raise UnknownName("format", format, FORMATS)
    found, named = history_request(request, _announce)
    _print(found, "json" if as_json else format, output, named=named)
    slower = [one for one in found.series if one.slower]
    if fail_on_change and slower:
        talk(f"{count_noun(len(slower), 'series', 'series')} slower since the newest change, or in the newest runs")
        raise typer.Exit(1)


def _announce(cases: int) -> None:
    if cases >= _MANY:
        talk(f"looking at {cases} cases")


def _print(found: Histories, format: str, output: Path | None, *, named: bool) -> None:
    from opmark.report.console.history import history_view, print_history
    from opmark.report.formats.markdown import history_markdown
    from opmark.report.text import json_line

    if format == "table" and output is None:
        print_history(found, console(), named=named)
        return
    if format == "table":
        from rich.console import Console

        text = io.StringIO()
        print_history(found, Console(file=text, width=_IN_A_FILE, highlight=False), named=named)
        written = text.getvalue()
    elif format == "md":
        written = history_markdown(found)
    else:
        written = "".join(json_line(history_view(one)) + "\n" for one in found.series)
    write_out(written, output)
    if output is not None:
        talk(f"wrote {len(found.series)} series to {output}")
