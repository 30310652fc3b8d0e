"""opmark prune"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.api.requests import talk
from opmark.cli.options import Db
from opmark.cli.output import console
from opmark.errors import UserError
from opmark.units import count_noun

if TYPE_CHECKING:
    from opmark.api.prune import Pruned

_INTERRUPTED = 130


def prune(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Ids (or their beginnings) or labels.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Only runs that began before this: 2030-12-31, 2030-12-31T18:00 (UTC), 30d, 8w.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Only runs with this label; * and ? are allowed.")] = None,
    keep_last: Annotated[int | None, typer.Option(help="Keep the newest N of the selected runs.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every run of the store.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Without it, a script removes nothing.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Give the space back to the disk.")] = False,
    db: Db = None,
) -> None:
    from opmark.api.prune import prune as api_prune
    from opmark.api.prune import remove

    selection = {"before": before, "label": label, "keep_last": keep_last, "everything": everything}
    found = api_prune(runs or (), **selection, compact=compact, db=db)  # type: ignore[arg-type]
    _print_selection(found)
    if found.runs:
        _confirm(found, yes=yes)
    elif not compact:
        talk("no run is of that kind; nothing was removed")
        return
    done = remove([run.id for run in found.runs], compact=compact, db=db)  # exactly the runs that were listed
    if done.removed:
        talk(f"removed {_describe(done)}")
    elif found.runs:
        talk("gone already; nothing was removed")
    if done.compacted:
        talk(done.compacted)


def _print_selection(found: Pruned) -> None:
    from opmark.report.console.runs import print_runs

    if found.runs:
        print_runs(found.runs, console())
    if found.parted:
        talk(f"measured in turns with one of these, and to stay: {', '.join(found.parted)}")
    if found.running:
        talk(f"warning: began in the last day and not complete, may still be running: {', '.join(found.running)}")


def _confirm(found: Pruned, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(f"{_describe(found)} would be removed; nothing was", "--yes removes them without asking")
    try:
        agreed = typer.confirm(f"Remove {_describe(found)} for good?", err=True)
    except typer.Abort:
        talk("\nnothing was removed")
        raise typer.Exit(_INTERRUPTED) from None
    if not agreed:
        talk("nothing was removed")
        raise typer.Exit


def _describe(found: Pruned) -> str:
    return f"{count_noun(len(found.runs), 'run')} with {count_noun(found.records, 'record')}"
