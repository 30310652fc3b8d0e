"""opmark coverage"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opmark.cli.output import console, print_json_lines
from opmark.errors import InvalidParameter, UnknownName

_BY = ("framework", "backend")


def coverage(
    framework: Annotated[str | None, typer.Argument(help="torch, numpy. [default: torch]")] = None,
    by: Annotated[
        str, typer.Option(help="framework: how much of one can be measured; backend: the catalogue on each of them.")
    ] = "framework",
    db: Annotated[Path | None, typer.Option(help="The store. [default: $OPMARK_DB or the data directory]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, with every operator.")] = False,
) -> None:
    """Which operators of a framework can be measured, how, and which not; or which operators every backend has."""
    from opmark import api

    if by not in _BY:
        raise UnknownName("grouping", by, _BY)
    if by == "backend":
        if framework is not None:
            raise InvalidParameter("coverage --by backend is of all backends", f"leave `{framework}` out")
        _print_matrix(db, as_json=as_json)
        return
    from opmark.report.coverage import coverage_text, coverage_view

    found = api.coverage(framework or "torch", db=db)
    if as_json:
        print_json_lines([coverage_view(found)])
    else:
        console().print(coverage_text(found))


def _print_matrix(db: Path | None, *, as_json: bool) -> None:
    from opmark import api
    from opmark.report.matrix import matrix_text, matrix_view

    found = api.coverage_matrix(db=db)
    if as_json:
        print_json_lines([matrix_view(found)])
    else:
        console().print(matrix_text(found))
