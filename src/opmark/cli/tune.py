"""opmark tune"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from opmark.api.requests import TuneRequest
from opmark.cli.options import Json, takes
from opmark.cli.output import console, print_json_lines

if TYPE_CHECKING:
    from opmark.api.ab import TurnProgress
    from opmark.api.tune import Trial


@takes(TuneRequest)
def tune(request: TuneRequest, as_json: Json = False) -> None:
    from opmark.api.result import storage_line
    from opmark.api.tune import tune_request, tuning_view
    from opmark.cli.progress import StepProgress, Turns
    from opmark.report.console.tuning import print_tuning

    turns = Turns()
    with StepProgress("tune") as progress:
        case = [""]

        def on_case(name: str, place: int, count: int) -> None:
            case[0] = f"{name} ({place + 1} of {count})" if count > 1 else name
            progress.step(0, request.trials, f"{case[0]}: the default")

        def on_trial(trial: Trial) -> None:
            from opmark.units import seconds

            best = f"best {seconds(trial.best.seconds)}" if trial.best and trial.best.seconds else "none measured"
            progress.step(trial.number, trial.most, f"{case[0]}: {best}")

        def on_turn(turn: TurnProgress) -> None:
            progress.step(0, 0, "default, tuned and library in turns")
            if sys.stderr.isatty():
                turns.turn(turn)

        try:
            found = tune_request(
                replace(request, on_case=on_case, on_trial=on_trial, on_turn=on_turn, say=progress.say)
            )
        except KeyboardInterrupt:
            progress.say("interrupted; what was measured is stored: the same command with --resume goes on")
            raise typer.Exit(130) from None
    if as_json:
        print_json_lines([tuning_view(found)])
    else:
        print_tuning(tuning_view(found), console())
    turns.say(storage_line(found.runs, request.db))
