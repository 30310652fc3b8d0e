"""opmark calibrate"""

from __future__ import annotations

from dataclasses import replace

import typer

from opmark.api.requests import CalibrateRequest
from opmark.cli.options import Json, takes
from opmark.cli.output import console, print_json_lines


@takes(CalibrateRequest)
def calibrate(request: CalibrateRequest, as_json: Json = False) -> None:
    from opmark.api.calibrate import calibrate_request, datasheet_peaks
    from opmark.api.progress import StepProgress
    from opmark.report.console.machine import peaks_text

    with StepProgress("calibrate") as progress:
        peaks, journals = calibrate_request(replace(request, say=progress.say, on_step=progress.step))
    if as_json:
        print_json_lines([peaks])
    else:
        console().print(peaks_text(peaks, datasheet_peaks(peaks)))
    if journals:
        raise typer.Exit(1)
