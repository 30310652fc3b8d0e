"""opmark tune"""

from __future__ import annotations

from dataclasses import replace

import typer

from opmark.api.requests import TuneRequest
from opmark.cli.options import Json, takes
from opmark.cli.output import console, print_json_lines


@takes(TuneRequest)
def tune(request: TuneRequest, as_json: Json = False) -> None:
    from opmark.api.progress import TuneProgress
    from opmark.api.result import db_option, storage_line
    from opmark.api.tune import tune_request, tuning_view
    from opmark.report.console.tuning import print_tuning

    progress = TuneProgress("tune", request.trials, request.budget)
    with progress:
        try:
            found = tune_request(
                replace(
                    request, on_case=progress.case, on_trial=progress.trial, on_turn=progress.turn, say=progress.say
                )
            )
        except KeyboardInterrupt:
            progress.say("interrupted; what was measured is stored: the same command with --resume goes on")
            raise typer.Exit(130) from None
    if as_json:
        print_json_lines([tuning_view(found)])
    else:
        print_tuning(tuning_view(found), console())
    progress.say(storage_line(found.runs, request.db))
    drawn = "best so far, knobs against time, what they matter"
    progress.say(f"hint: `opmark report {found.run.id}{db_option(request.db)}` draws the search: {drawn}")
    if any(one.search is not None and one.search.stopped and not one.search.tied for one in found.cases):
        raise typer.Exit(1)
