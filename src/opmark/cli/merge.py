"""opmark merge"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.api.requests import talk
from opmark.cli.options import Db

_SHOWN = 5
"""Reasons that are printed for each store."""


def merge(
    others: Annotated[
        list[str],
        typer.Argument(metavar="OTHER...", help="Stores: files, postgresql://..., journals."),
    ],
    db: Db = None,
) -> None:
    from opmark.api.merge import display_address
    from opmark.api.merge import merge as merge_stores
    from opmark.report.console.runs import merged_line
    from opmark.report.text import printable

    refused = 0
    for other, merged in zip(others, merge_stores(*others, db=db), strict=True):
        name = printable(str(display_address(other)))
        talk(f"{name}: {merged_line(merged)}")
        for reason in merged.refused[:_SHOWN]:
            talk(f"{name}: left out: {reason}")
        if len(merged.refused) > _SHOWN:
            talk(f"{name}: left out: {len(merged.refused) - _SHOWN} more")
        refused += len(merged.refused)
    if refused:
        raise typer.Exit(1)
