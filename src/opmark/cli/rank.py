"""opmark rank"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opmark.cli.options import Db
from opmark.cli.output import console, write_out


def rank(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Ids (or their beginnings) or labels. [default: every run of the store]")
    ] = None,
    by: Annotated[str, typer.Option(help="operator, dtype, size, case.")] = "operator",
    quantity: Annotated[
        str,
        typer.Option(
            help="What to rank by, as in `opmark list quantities`. [default: device_time where all backends of a case "
            "have it, else latency]",
        ),
    ] = "",
    cache: Annotated[
        str,
        typer.Option(
            help="State of the caches: cold, warm, rotated. [default: cold for what a device did, else warm, as far "
            "as all have it]",
        ),
    ] = "",
    db: Db = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the JSON to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for a program to choose by.")] = False,
) -> None:
    import msgspec

    from opmark.api.rank import rank as api_rank
    from opmark.api.requests import talk
    from opmark.report.console.ranking import ranking_text
    from opmark.units import count_noun

    found = api_rank(runs, by=by, quantity=quantity, cache=cache, db=db)
    if as_json or output:
        write_out(msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n", output)
        if output:
            talk(f"wrote {count_noun(len(found.cases), 'case')} to {output}")
    if not as_json:
        console().print(ranking_text(found, by))
