"""opmark show"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.cli.options import Db, NoColor, Wide
from opmark.cli.output import TableStyle, console, print_json_lines, print_records, write_files
from opmark.errors import UserError

if TYPE_CHECKING:
    from opmark.api.result import Result

_TABLE = "table"


def show(
    run: Annotated[str | None, typer.Argument(help="Id (or its beginning) or label. [default: the last run]")] = None,
    format: Annotated[
        str, typer.Option("-f", "--format", help="table, md, csv, json, jsonl, parquet; all: `opmark list formats`.")
    ] = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file; its ending tells the format, if -f does not.")
    ] = None,
    db: Db = None,
    long: Annotated[
        bool, typer.Option("--long", help="One row per task, even where backends stand side by side.")
    ] = False,
    numerics: Annotated[
        bool, typer.Option("--numerics", help="Errors of results against the float64 reference, instead of times.")
    ] = False,
    wide: Wide = False,
    no_color: NoColor = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per record, with everything in it.")] = False,
) -> None:
    from opmark.api.export import export
    from opmark.api.requests import talk
    from opmark.api.show import show as api_show
    from opmark.report.formats import format_for
    from opmark.schema.codec import gc_disabled

    chosen = format_for(format, output, _TABLE)
    _refuse_display_options(chosen, output, long=long, numerics=numerics, wide=wide, as_json=as_json)
    with gc_disabled():  # thousands of small objects, all of them needed until the end
        result = api_show(run, db=db)
        talk(_headline(result))
        if as_json:
            print_json_lines(result.rows())
        elif numerics:
            from opmark.report.console.numerics import print_numerics

            print_numerics(result.records, console(wide=wide, no_color=no_color))
        elif chosen == _TABLE and output is None:
            print_records(result.records, result.peaks, TableStyle(long, wide, no_color))
        else:
            write_files(export(result, format=chosen), output)
        gc.freeze()  # no collection when the process ends either


def _refuse_display_options(format: str, output: Path | None, **options: bool) -> None:
    """Raise UserError for options that change the display on the screen, if a file or another format is written."""
    chosen = [name.replace("as_", "") for name, is_set in options.items() if is_set]
    if chosen and (format != _TABLE or output):
        what = f"--output {output}" if format == _TABLE else f"the format {format}"
        raise UserError(f"--{chosen[0]} does not go with {what}", "give one of them")


def _headline(result: Result) -> str:
    from opmark.report.text import printable

    named = f" ({printable(result.run.label)})" if result.run.label else ""
    missing = max(0, result.run.tasks - len(result.records))
    unfinished = f", {missing} of {result.run.tasks} tasks not run" if missing else ""
    return f"run {result.run.id}{named} of {result.run.started}{unfinished}"
