"""opmark tune"""

from __future__ import annotations

import sys
from dataclasses import replace
from time import monotonic
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
    from opmark.api.result import db_option, storage_line
    from opmark.api.tune import tune_request, tuning_view
    from opmark.cli.progress import StepProgress, Turns
    from opmark.report.console.tuning import print_tuning

    turns = Turns()
    with StepProgress("tune") as progress:
        case = [""]
        trials = [0, request.trials]
        """Trials of the cases before this one, and of all."""
        began = monotonic()

        def on_case(name: str, place: int, count: int) -> None:
            case[0] = f"{name} ({place + 1} of {count})" if count > 1 else name
            trials[:] = [place * request.trials, count * request.trials]
            progress.step(trials[0], trials[1], f"{case[0]}: the default and the first candidates", budget_left())

        def on_trial(trial: Trial) -> None:
            from opmark.units import seconds

            best = f"best {seconds(trial.best.seconds)}" if trial.best and trial.best.seconds else "none measured"
            progress.step(trials[0] + trial.number, trials[1], f"{case[0]}: {best}", budget_left())

        def budget_left() -> float:
            return max(0.0, request.budget - (monotonic() - began))

        def on_turn(turn: TurnProgress) -> None:
            doing = f"the verdicts, in turns: {turn.side.name}, pair {turn.turn.pair} of {turn.turn.until}"
            progress.step(2 * turn.turn.pair - 2 + turn.turn.side, 2 * turn.turn.until, doing)
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
    drawn = "best so far, knobs against time, what they matter"
    turns.say(f"hint: `opmark report {found.run.id}{db_option(request.db)}` draws the search: {drawn}")
    if any(one.search is not None and one.search.stopped and not one.search.tied for one in found.cases):
        raise typer.Exit(1)
