"""opmark history"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.cli.options import Db, share
from opmark.cli.output import console, split, talk, write_out
from opmark.errors import UnknownName

if TYPE_CHECKING:
    from opmark.schema.history import Histories

FORMATS = ("table", "md", "json")
_IN_A_FILE = 1000
"""Columns of a table that goes to a file."""
_MANY = 500
"""Cases that take long enough for a word."""


def history(
    ops: Annotated[
        list[str] | None, typer.Argument(help="Operators, also 'conv*'. [default: every series that changed]")
    ] = None,
    params: Annotated[
        list[str] | None, typer.Option("-p", "--param", help="NAME=VALUE or NAME=VALUE,VALUE: only these cases.")
    ] = None,
    case: Annotated[str, typer.Option(help="The id of a case, or its beginning.")] = "",
    backend: Annotated[list[str] | None, typer.Option(help="Only these, also 'torch*'.")] = None,
    phase: Annotated[list[str] | None, typer.Option(help="Only these: forward, backward, both.")] = None,
    quantity: Annotated[str, typer.Option(help="As in `opmark list quantities`, or all. [default: the headline]")] = "",
    label: Annotated[str, typer.Option(help="Only runs of this label, also 'nightly*'.")] = "",
    since: Annotated[str, typer.Option(help="Only runs started since: 2030-12-31, or 30d.")] = "",
    last: Annotated[int | None, typer.Option(help="Only so many of the newest runs.")] = None,
    sessions: Annotated[
        bool, typer.Option("--sessions", help="Also runs that were measured in turns, as `opmark ab` does.")
    ] = False,
    margin: Annotated[str, typer.Option(help="Changes up to this are none: 0.02 or 2%.")] = "2%",
    everything: Annotated[bool, typer.Option("--all", help="Also series without a change.")] = False,
    format: Annotated[str, typer.Option(help="table, md, json.")] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a series, as --format json.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it to this file.")] = None,
    db: Db = None,
) -> None:
    """What got slower or faster, when, and what else changed there: change points over stored runs."""
    from opmark.analysis.history import Asked
    from opmark.api.following import follow, moment

    if format not in FORMATS:
        raise UnknownName("format", format, FORMATS)
    names = split(ops or [])
    asked = Asked(
        names, _parsed(names, params or []), case, split(backend or []), split(phase or []), quantity, label,
        moment(since), last, sessions,
    )  # fmt: skip
    found = follow(asked, everything=everything, margin=share(margin, "margin"), db=db, begin=_begin)
    _print(found, "json" if as_json else format, output, named=asked.named)


def _begin(cases: int) -> None:
    if cases >= _MANY:
        talk(f"looking at {cases} cases")


def _parsed(names: list[str], params: list[str]) -> dict[str, object]:
    from opmark.errors import UserError

    if params and not names:
        raise UserError("-p goes with operators", "as in `opmark history matmul -p M=1024`; --case takes an id")
    if not params:
        return {}
    from opmark.api.measuring import parse_params

    return dict(parse_params(names, params))


def _print(found: Histories, format: str, output: Path | None, *, named: bool) -> None:
    from opmark.report.history import history_markdown, history_view, print_history
    from opmark.report.plain import json_line

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
