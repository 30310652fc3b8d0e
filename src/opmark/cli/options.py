"""Options that many commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Wide = Annotated[
    bool,
    typer.Option(
        "--wide",
        help="Whole lines, however narrow the terminal is; where a row is a task, a drawing of its samples too.",
    ),
]

NoColor = Annotated[bool, typer.Option("--no-color", help="No colours, as with $NO_COLOR; a pipe or file gets none.")]

Db = Annotated[
    str | None,
    typer.Option(
        help="The store: a file, or postgresql://user@host/database. [default: $OPMARK_DB or the data directory]"
    ),
]
