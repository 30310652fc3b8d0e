"""opmark factors"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from opmark.api.requests import FactorsRequest
from opmark.cli.options import Json, takes
from opmark.cli.output import console, print_json_lines

if TYPE_CHECKING:
    from opmark.api.factors import FactorProgress


@takes(FactorsRequest)
def factors(request: FactorsRequest, as_json: Json = False) -> None:
    from msgspec import to_builtins

    from opmark.api.factors import factor_settings, factors_request
    from opmark.api.progress import StepProgress
    from opmark.api.result import storage_line
    from opmark.report.console.factors import print_settings, print_study

    if request.listing:
        settings = factor_settings(request)
        if as_json:
            print_json_lines(to_builtins(one) for one in settings)
        else:
            print_settings(settings, console())
        return
    with StepProgress("factors") as progress:

        def on_progress(found: FactorProgress) -> None:
            progress.step(found.number, found.most, f"process {found.process + 1} of {found.processes}: {found.what}")

        try:
            found = factors_request(replace(request, on_progress=on_progress, say=progress.say))
        except KeyboardInterrupt:
            progress.say("interrupted; what was measured is stored: the same command with --resume goes on")
            raise typer.Exit(130) from None
    if as_json:
        print_json_lines([to_builtins(found)])
    else:
        print_study(found, console())
    if request.run is None:
        progress.say(storage_line([found.run], request.db))
