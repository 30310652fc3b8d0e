"""opmark push"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from opmark.cli.options import Db
from opmark.errors import InvalidParameter

VARIABLE = "OPMARK_TOKEN"
_UNDELIVERED = 1
_LONGEST = 4096
"""Bytes of a file that can be a token."""


def push(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of `opmark serve`, as in https://bench.example.org.")],
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Ids (or their beginnings) or labels. [default: the last run]"),
    ] = None,
    label: Annotated[str, typer.Option(help="Those of this label; it may have * and ?.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every run of the store.")] = False,
    token: Annotated[
        str | None, typer.Option(help=f"The dashboard's; others see it in lists of processes. [default: ${VARIABLE}]")
    ] = None,
    token_file: Annotated[str | None, typer.Option(help="A file with the token, and nothing else.")] = None,
    insecure_http: Annotated[
        bool, typer.Option("--insecure-http", help="Send the token over plain http to another machine.")
    ] = False,
    db: Db = None,
) -> None:
    """Send runs to a dashboard. What is there already is left out, so it can be said twice; nothing is removed here."""
    from opmark import api

    if token is not None and token_file is not None:
        raise InvalidParameter("push: both --token and --token-file are given", "say it once")
    if token_file is not None:
        token = _from_file(token_file)
    elif token is None:
        token = os.environ.get(VARIABLE)
    asked = {"label": label, "everything": everything, "insecure_http": insecure_http, "db": db}
    done = api.push(url, *runs or (), token=token, **asked)  # type: ignore[arg-type]
    if any(one.problem for one in done):
        raise typer.Exit(_UNDELIVERED)


def _from_file(name: str) -> str:
    try:
        with Path(name).expanduser().open("rb") as file:
            return file.read(_LONGEST).decode().strip()
    except OSError as error:
        raise InvalidParameter(f"--token-file: {name}: {error.strerror}") from None
    except (UnicodeDecodeError, RuntimeError):
        raise InvalidParameter(f"--token-file: {name}: expected a token, in a file of text") from None
