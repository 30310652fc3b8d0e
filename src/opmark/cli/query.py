"""opmark query"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from opmark.api.requests import talk
from opmark.cli.options import Db, duration
from opmark.cli.output import write_lines, write_out
from opmark.errors import UserError


def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="A SELECT over the views; - reads it from standard input.")
    ] = "",
    format: Annotated[
        str, typer.Option("-f", "--format", help="table, md, csv, json, jsonl, parquet. [default: table]")
    ] = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file; its ending tells the format, if -f does not.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Rows at most; 0 for all.")] = 0,
    timeout: Annotated[
        float,
        typer.Option(parser=duration("--timeout"), metavar="<str>", help="Seconds after which the query is given up."),
    ] = 60.0,
    as_superuser: Annotated[
        bool, typer.Option("--as-superuser", help="Allow a superuser of PostgreSQL, whose queries could change data.")
    ] = False,
    views: Annotated[bool, typer.Option("--views", help="List the views and their columns instead.")] = False,
    db: Db = None,
) -> None:
    from opmark.api.query import stream_query, view_columns
    from opmark.report.formats import LINES, format_for, format_grid
    from opmark.report.formats.grid import Grid

    chosen = format_for(format, output)
    if views:
        rows = [[name, ", ".join(columns)] for name, columns in view_columns(db).items()]
        write_out(format_grid(Grid(["view", "columns"], rows), chosen), output)
        return
    answers = stream_query(_read_statement(sql), limit=limit or None, timeout=timeout, as_superuser=as_superuser, db=db)
    with answers as answer:
        if chosen in LINES:
            write_lines(LINES[chosen](answer.columns, answer), output)
        else:
            write_out(format_grid(Grid(answer.columns, list(answer)), chosen), output)
    if not answer.complete:
        talk(f"these are the first {limit} rows; --limit gives more")


def _read_statement(sql: str) -> str:
    text = sys.stdin.read() if sql == "-" else sql
    if not text.strip():
        raise UserError(
            "no SQL is given", 'as in `opmark query "select op, count(*) from records group by op"`; --views lists them'
        )
    return text
