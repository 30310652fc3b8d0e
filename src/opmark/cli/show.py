"""opmark show"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.cli.options import Db
from opmark.cli.output import console, print_json_lines, print_records


def show(
    run: Annotated[str | None, typer.Argument(help="Id (or its beginning) or label. [default: the last run]")] = None,
    db: Db = None,
    long: Annotated[bool, typer.Option("--long", help="A row a task, also where backends stand side by side.")] = False,
    numerics: Annotated[
        bool, typer.Option("--numerics", help="How far results are from the float64 reference, instead of times.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a record.")] = False,
) -> None:
    """Print a stored run."""
    from opmark import api

    result = api.show(run, db=db)
    named = f" ({result.run.label})" if result.run.label else ""
    missing = result.run.tasks - len(result.records)
    unfinished = f", {missing} of {result.run.tasks} tasks not run" if missing else ""
    api.talk(f"run {result.run.id}{named} of {result.run.started}{unfinished}")
    if as_json:
        print_json_lines(result.rows())
    elif numerics:
        from opmark.report.numerics import print_numerics

        print_numerics(result.records, console())
    else:
        print_records(result.records, result.peaks, long=long)
