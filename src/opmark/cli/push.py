"""opmark push"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.cli.options import Db

_UNDELIVERED = 1


def push(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of `opmark serve`, as in https://bench.example.org.")],
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Ids (or their beginnings) or labels. [default: the last run]"),
    ] = None,
    label: Annotated[str, typer.Option(help="Those of this label; it may have * and ?.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every run of the store.")] = False,
    token: Annotated[
        str | None, typer.Option(help="The dashboard's; others see it in lists of processes. [default: $OPMARK_TOKEN]")
    ] = None,
    token_file: Annotated[str | None, typer.Option(help="A file with the token, and nothing else.")] = None,
    insecure_http: Annotated[
        bool, typer.Option("--insecure-http", help="Send the token over plain http to another machine.")
    ] = False,
    db: Db = None,
) -> None:
    """Send runs to a dashboard. What is there already is left out, so it can be said twice; nothing is removed here."""
    from opmark.api.push import push as api_push
    from opmark.api.push import token_of

    asked = {"label": label, "everything": everything, "insecure_http": insecure_http, "db": db}
    done = api_push(url, *runs or (), token=token_of(token, token_file), **asked)  # type: ignore[arg-type]
    if any(one.problem for one in done):
        raise typer.Exit(_UNDELIVERED)
