"""opmark coverage"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.cli.options import Db
from opmark.cli.output import console, print_json_lines


def coverage(
    framework: Annotated[str, typer.Argument(help="torch, numpy.")] = "torch",
    by: Annotated[
        str,
        typer.Option(help="framework: how its operators can be measured; backend: which operators of opmark each has."),
    ] = "framework",
    db: Db = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, with every operator.")] = False,
) -> None:
    from opmark.api.coverage import coverage as api_coverage
    from opmark.report.console.operators import coverage_text, coverage_view, matrix_text, matrix_view
    from opmark.schema.coverage import Coverage

    found = api_coverage(framework, by=by, db=db)
    if as_json:
        print_json_lines([coverage_view(found) if isinstance(found, Coverage) else matrix_view(found)])
    else:
        console().print(coverage_text(found) if isinstance(found, Coverage) else matrix_text(found))
