"""opmark corun"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from opmark.api.program_requests import CorunRequest
from opmark.cli.options import Json, takes
from opmark.cli.output import console, print_json_lines

if TYPE_CHECKING:
    from opmark.schema import Record


@takes(CorunRequest)
def corun(request: CorunRequest, as_json: Json = False) -> None:
    from opmark.api.corun import corun_request, corun_view
    from opmark.api.progress import StepProgress
    from opmark.api.result import interruption_line, storage_line
    from opmark.report.console.corun import print_corun

    seen: list[Record] = []
    with StepProgress("corun") as progress:
        try:
            found = corun_request(replace(request, on_step=progress.step, on_record=seen.append, say=progress.say))
        except KeyboardInterrupt:
            if seen or request.resume:
                progress.say("interrupted; what was measured is stored: the same command with --resume goes on")
            else:
                progress.say(interruption_line((), request.db))
            raise typer.Exit(130) from None
    view = corun_view(found)
    if as_json:
        print_json_lines([view])
    else:
        print_corun(found.results, found.notes, console())
    progress.say(storage_line([found.run.id], request.db))
    if found.failed:
        raise typer.Exit(1)
