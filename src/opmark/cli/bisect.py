"""opmark bisect"""

from __future__ import annotations

from dataclasses import replace

import typer

from opmark.api.requests import BisectRequest
from opmark.cli.ab import print_compared
from opmark.cli.options import Json, takes
from opmark.cli.output import print_json_lines


@takes(BisectRequest)
def bisect(request: BisectRequest, as_json: Json = False) -> None:
    from opmark.api.bisect import bisect_request
    from opmark.api.progress import Turns
    from opmark.report.console.comparison import bisected_lines, step_line

    turns = Turns()
    try:
        found = bisect_request(
            replace(request, on_turn=turns.turn, on_step=lambda step: turns.say(step_line(step)), say=turns.say)
        )
    except KeyboardInterrupt:
        turns.say("interrupted: what was measured is stored; the repository is as it was")
        raise typer.Exit(130) from None
    finally:
        turns.end()
    if as_json:
        print_json_lines([found])
    else:
        if not found.first:
            print_compared(found.compared, as_json=False)
        for line in bisected_lines(found):
            print(line)
        if found.log:
            print(found.log)
    if not found.first:
        raise typer.Exit(1)
