"""opmark push"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.cli.options import Db, duration

_UNDELIVERED = 1


def push(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Address of `opmark serve`, as in https://bench.example.org.")
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Ids (or their beginnings) or labels. [default: the last run]"),
    ] = None,
    label: Annotated[str, typer.Option(help="Send the runs with this label; * and ? are allowed.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every run of the store.")] = False,
    token: Annotated[
        str | None,
        typer.Option(help="Token of the dashboard. Other users see it in process lists. [default: $OPMARK_TOKEN]"),
    ] = None,
    token_file: Annotated[str | None, typer.Option(help="A file with the token, and nothing else.")] = None,
    insecure_http: Annotated[
        bool, typer.Option("--insecure-http", help="Send the token over plain http to another machine.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            parser=duration("--timeout"),
            metavar="<str>",
            help="Seconds without a delivery, over all tries, after which it is given up.",
        ),
    ] = 180.0,
    db: Db = None,
) -> None:
    from opmark.api.push import push as api_push
    from opmark.api.push import token_of

    done = api_push(
        url, *runs or (), label=label, everything=everything, token=token_of(token, token_file),
        insecure_http=insecure_http, timeout=timeout, db=db,
    )  # fmt: skip
    if any(one.problem for one in done):
        raise typer.Exit(_UNDELIVERED)
