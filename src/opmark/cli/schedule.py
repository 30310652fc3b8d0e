"""opmark schedule"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from opmark.api.program_requests import ScheduleRequest
from opmark.cli.options import Json, takes
from opmark.cli.output import console, print_json_lines

if TYPE_CHECKING:
    from opmark.api.ab import TurnProgress


@takes(ScheduleRequest)
def schedule(request: ScheduleRequest, as_json: Json = False) -> None:
    from opmark.api.progress import StepProgress, Turns
    from opmark.api.result import storage_line
    from opmark.api.schedule import schedule_request, schedule_view
    from opmark.report.console.schedule import print_schedule

    turns = Turns()
    with StepProgress("schedule") as progress:

        def on_turn(turn: TurnProgress) -> None:
            if sys.stderr.isatty():
                turns.turn(turn)

        found = schedule_request(replace(request, on_step=progress.step, on_turn=on_turn, say=progress.say))
    view = schedule_view(found)
    if as_json:
        print_json_lines([view])
    else:
        print_schedule(view, console())
    for note in found.notes:
        turns.say(note)
    if found.runs:
        turns.say(storage_line(found.runs, request.db))
