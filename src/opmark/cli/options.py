"""Options that many commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Db = Annotated[
    str | None,
    typer.Option(
        help="The store: a file, or postgresql://user@host/database. [default: $OPMARK_DB or the data directory]"
    ),
]
