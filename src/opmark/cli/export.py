"""opmark export"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opmark.cli.options import Allow, Db
from opmark.cli.output import split, write_files
from opmark.errors import UserError


def export(
    run: Annotated[str | None, typer.Argument(help="Id (or its beginning) or label. [default: the last run]")] = None,
    format: Annotated[str, typer.Option("-f", "--format", help="As in `opmark list formats`.")] = "",
    workload: Annotated[
        Path | None,
        typer.Option("-w", "--workload", help="Export this workload file or trace, in any format, instead of a run."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A file, whose ending may tell the format; a folder for several."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop if a part of the workload is not understood.")] = False,
    allow: Allow = None,
    db: Db = None,
) -> None:
    from opmark.api.export import export as api_export
    from opmark.api.export import export_workload
    from opmark.api.requests import talk
    from opmark.report.formats import format_for
    from opmark.schema.codec import gc_disabled

    format = format_for(format, output, "")
    if not format:
        raise UserError("no format is named", "as in --format csv; `opmark list formats` lists them")
    if workload is None:
        with gc_disabled():
            write_files(api_export(run, format=format, db=db), output)
        return
    if run is not None:
        raise UserError("a run and a workload are two things", "give one of them")
    files, unsaid = export_workload(workload, format=format, strict=strict, allow=split(allow or []))
    for line in unsaid:
        talk(line)
    write_files(files, output)
    if unsaid:
        raise typer.Exit(1)
