"""opmark ab"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from opmark.api.requests import ABRequest
from opmark.cli.options import Json, takes

if TYPE_CHECKING:
    from opmark.schema.comparison import Compared


@takes(ABRequest)
def ab(request: ABRequest, as_json: Json = False) -> None:
    """Measure two sides in turns that differ in one thing; is B faster or slower?

    --backend, --python or --threads with two values, --env, --rev or --same says what A and B are.
    """
    from opmark.api.ab import ab_request
    from opmark.cli.progress import Turns

    turns = Turns()
    shown: list[Compared] = []
    try:
        found = ab_request(replace(request, on_turn=turns.turn, on_interrupted=shown.append, say=turns.say))
    except KeyboardInterrupt:
        turns.end()
        for compared in shown:
            show(compared, as_json=as_json)
        turns.say(
            f"interrupted: what was measured is stored as runs {' and '.join(shown[0].runs)}"
            if shown
            else "interrupted before both sides had been measured once"
        )
        raise typer.Exit(130) from None
    finally:
        turns.end()
    show(found, as_json=as_json)
    turns.say(f"stored as runs {' and '.join(found.runs)}")
    if failed(found):
        raise typer.Exit(1)


def show(compared: Compared, *, as_json: bool) -> None:
    from opmark.cli.compare import write_comparison

    write_comparison(compared, "json" if as_json else "table", None, [])


def failed(compared: Compared) -> bool:
    """Whether a case failed on a side, or none could be measured."""
    from opmark.schema.record import FAILED

    statuses = [status for pair in compared.pairs for status in pair.statuses]
    return "ok" not in statuses or bool(FAILED.intersection(statuses))
