"""opmark ab"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.api.requests import ABRequest
from opmark.cli.options import Json, takes
from opmark.cli.output import split
from opmark.errors import UnknownName

if TYPE_CHECKING:
    from opmark.schema.comparison import Compared


_FAIL_IF = ("slower", "faster", "undecided")


@takes(ABRequest)
def ab(
    request: ABRequest,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(help=f"Exit with 1 if B is {', '.join(_FAIL_IF)} in a case. A case that failed always does."),
    ] = None,
    as_json: Json = False,
) -> None:
    from opmark.api.ab import ab_request
    from opmark.api.progress import Turns
    from opmark.api.result import journals_of, storage_line

    verdicts = split(fail_if or [])
    for word in verdicts:
        if word not in _FAIL_IF:
            raise UnknownName("verdict", word, _FAIL_IF)
    turns = Turns()
    interrupted: list[Compared] = []
    try:
        found = ab_request(replace(request, on_turn=turns.turn, on_interrupted=interrupted.append, say=turns.say))
    except KeyboardInterrupt:
        turns.end()
        for compared in interrupted:
            print_compared(compared, as_json=as_json)
        turns.say(
            f"interrupted\n{storage_line(interrupted[0].runs, request.db)}"
            if interrupted
            else "interrupted before both sides had been measured once"
        )
        raise typer.Exit(130) from None
    finally:
        turns.end()
    print_compared(found, as_json=as_json)
    journals = journals_of(request.db, found.runs)
    turns.say(storage_line(found.runs, request.db, journals))
    if has_failures(found) or journals or any(pair.verdict in verdicts for pair in found.pairs):
        raise typer.Exit(1)


def print_compared(compared: Compared, *, as_json: bool) -> None:
    from opmark.cli.compare import write_comparison

    write_comparison(compared, "json" if as_json else "table", None, [])


def has_failures(compared: Compared) -> bool:
    """Return whether a case failed on a side, or none could be measured."""
    from opmark.schema.record import FAILED, MEASURED

    statuses = [status for pair in compared.pairs for status in pair.statuses]
    return not MEASURED.intersection(statuses) or bool(FAILED.intersection(statuses))
