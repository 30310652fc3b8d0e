"""opmark export"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from opmark.cli.options import Db
from opmark.cli.output import write_out
from opmark.errors import UserError


def export(
    run: Annotated[str | None, typer.Argument(help="Id (or its beginning) or label. [default: the last run]")] = None,
    format: Annotated[str, typer.Option("-f", "--format", help="As in `opmark list formats`.")] = "",
    workload: Annotated[
        Path | None, typer.Option("-w", "--workload", help="Instead of a run: a workload, of whatever format.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file, or a folder where there are several.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Of a workload: stop if a part is not understood.")] = False,
    db: Db = None,
) -> None:
    """A stored run, or a workload, in another system's format."""
    from opmark import api

    if not format:
        raise UserError("no format is named", "as in --format param; `opmark list formats` lists them")
    if workload is None:
        _write(api.export(run, format=format, db=db), output)
        return
    if run is not None:
        raise UserError("a run and a workload are two things", "give one of them")
    files, unsaid = api.export_workload(workload, format=format, strict=strict)
    for line in unsaid:
        api.talk(line)
    _write(files, output)
    if unsaid:
        raise typer.Exit(1)


def _write(files: Mapping[str, str], output: Path | None) -> None:
    from opmark import api
    from opmark.units import counted

    if not files:
        raise UserError("nothing of it can be said in that format")
    if len(files) == 1 and (output is None or output.suffix):
        write_out(next(iter(files.values())), output)
        return
    if output is None:
        raise UserError(f"these are {len(files)} files: {', '.join(list(files)[:3])}, ...", "-o FOLDER says where to")
    for name, text in files.items():
        write_out(text, output / name)
    api.talk(f"{counted(len(files), 'file')} in {output}")
