"""opmark merge"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.api.requests import talk
from opmark.cli.options import Db


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

    for other, merged in zip(others, merge_stores(*others, db=db), strict=True):
        talk(f"{printable(str(display_address(other)))}: {merged_line(merged)}")
