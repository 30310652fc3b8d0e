"""opmark model"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.api.program_requests import ModelExportRequest
from opmark.api.requests import RunRequest, talk
from opmark.cli.options import Db, NoColor, Wide, takes
from opmark.cli.output import console, print_json_lines

model = typer.Typer(no_args_is_help=True)


@model.command()
def matrix(
    run: Annotated[str | None, typer.Argument(help="Id (or its beginning) or label. [default: the last run]")] = None,
    db: Db = None,
    wide: Wide = False,
    no_color: NoColor = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per model and backend.")] = False,
) -> None:
    """Which models can be used on which backends, and where does it fail?"""
    from msgspec import to_builtins

    from opmark.api.model import matrix as find_usability
    from opmark.report.console.usability import print_usability

    found = find_usability(run, db=db)
    if as_json:
        print_json_lines(map(to_builtins, found))
    else:
        print_usability(found, console(wide=wide, no_color=no_color))


@model.command(help="Write a model as a file that other compilers read.")
@takes(ModelExportRequest)
def export(request: ModelExportRequest) -> None:
    from opmark.api.model import export_request
    from opmark.units import count_noun

    found = export_request(request)
    for file in found.files:
        print(file)
    talk(
        f"exported in {found.seconds:.3g} s: {count_noun(found.operators, 'operator')}, "
        f"{count_noun(found.weights, 'weight')}"
    )


@model.command(help="Which layer of a model is the first that a backend computes differently?")
@takes(RunRequest)
def diff(
    request: RunRequest,
    no_color: NoColor = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per model and backend.")] = False,
) -> None:
    from msgspec import to_builtins

    from opmark.api.model import diff_request
    from opmark.report.console.layer_differences import print_layer_differences

    found = diff_request(request)
    if as_json:
        print_json_lines(map(to_builtins, found))
    else:
        print_layer_differences(found, console(no_color=no_color))
    if any(one.differs or not one.layer for one in found):
        raise typer.Exit(1)
