"""opmark runs"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.api.requests import talk
from opmark.cli.options import Db
from opmark.cli.output import console, print_json_lines
from opmark.errors import UserError

LAST = 20

runs = typer.Typer()

_Run = Annotated[str, typer.Argument(metavar="RUN", help="Id (or its beginning) or label.")]


@runs.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    last: Annotated[int, typer.Option(help="Number of runs to list, the newest first; 0 for all.")] = LAST,
    label: Annotated[str, typer.Option(help="Only runs with this label; * and ? are allowed.")] = "",
    op: Annotated[str, typer.Option(help="Only runs that measured this operator; * and ? are allowed.")] = "",
    upgrade: Annotated[bool, typer.Option("--upgrade", help="First upgrade a store of an older version.")] = False,
    db: Db = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run.")] = False,
) -> None:
    if context.invoked_subcommand:
        if (last, label, op, upgrade, as_json) != (LAST, "", "", False, False):
            raise UserError(f"`opmark runs {context.invoked_subcommand}` lists nothing", "leave such options out")
        context.obj = db
        return
    from opmark.api.runs import list_runs
    from opmark.report.console.runs import print_runs

    found, older = list_runs(last=last or None, label=label, op=op, upgrade=upgrade, db=db)
    if upgrade:
        talk("the store is up to date")
    if as_json:
        print_json_lines([one.row() for one in found])
    elif found:
        print_runs(found, console())
    else:
        talk("no run of that kind" if label or op else "the store holds no run yet")
    if older:
        talk(f"and {older} older: --last N lists more of them, --last 0 all")


@runs.command("label")
def label_(
    context: typer.Context,
    run: _Run,
    text: Annotated[str, typer.Argument(help="The new label; '' removes it.")],
    db: Db = None,
) -> None:
    """Set the label of a run, by which other commands find it."""
    from opmark.api.runs import label
    from opmark.report.text import printable

    noted = label(run, text, say=lambda line: talk(f"warning: {line}"), db=db or context.obj)
    talk(f"run {noted.id} is `{printable(noted.label)}`" if noted.label else f"run {noted.id} has no label")


@runs.command("describe")
def describe(
    context: typer.Context,
    run: _Run,
    text: Annotated[str, typer.Argument(help="The new description, on one line; '' removes it.")],
    db: Db = None,
) -> None:
    """Set the description of a run."""
    from opmark.api.runs import describe_run

    noted = describe_run(run, text, db=db or context.obj)
    talk(f"run {noted.id}: {noted.description}" if noted.description else f"run {noted.id} has no description")
