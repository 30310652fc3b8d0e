"""opmark evaluate"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from opmark.api.program_requests import EvaluateRequest
from opmark.api.requests import talk
from opmark.cli.options import NoColor, Wide, takes
from opmark.cli.output import TableStyle, console, print_json_lines


@takes(EvaluateRequest)
def evaluate(
    request: EvaluateRequest,
    wide: Wide = False,
    no_color: NoColor = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per backend and element type, without the samples' scores.")
    ] = False,
) -> None:
    from msgspec import to_builtins

    from opmark.api.evaluate import evaluate_request
    from opmark.cli.progress import ProgressBar
    from opmark.report.console.evaluation import print_accuracy

    with ProgressBar(TableStyle(False, wide, no_color), as_json=as_json) as progress:
        try:
            rows, result = evaluate_request(
                replace(request, on_start=progress.start, on_record=progress.advance, say=progress.say)
            )
        except KeyboardInterrupt:
            progress.interrupted(request.db)
            raise typer.Exit(130) from None
    if as_json:
        print_json_lines(map(to_builtins, rows))
    else:
        print_accuracy(rows, console(wide=wide, no_color=no_color))
    talk(result.storage)
    if result.exit_code:
        raise typer.Exit(result.exit_code)
