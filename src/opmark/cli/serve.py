"""opmark serve"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opmark.cli.options import Db
from opmark.errors import InvalidParameter

_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def serve(
    db: Db = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than this machine only with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 8431,
    token: Annotated[
        str | None,
        typer.Option(
            help="Token that readers need. Other users see it in process lists: prefer a file or $OPMARK_TOKEN."
        ),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file that holds the token.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name to accept in requests. May be repeated.")
    ] = None,
    max_upload: Annotated[str, typer.Option(metavar="SIZE", help="Largest upload to accept, as in 32M.")] = "32M",
    log: Annotated[bool, typer.Option("--log", help="Print every request.")] = False,
) -> None:
    from opmark.api.push import token_of
    from opmark.dashboard.serve import serve as start

    start(
        db=db,
        host=host,
        port=port,
        token=token_of(token, token_file),
        allow_hosts=allow_host or (),
        max_upload=_size(max_upload),
        log=log,
    )


def _size(text: str) -> int:
    import re

    found = re.fullmatch(r"(\d{1,12})([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise InvalidParameter(f"max-upload: expected a size, got `{text}`", "as in --max-upload 32M")
    return int(found[1]) * _SIZES[found[2].upper()]
