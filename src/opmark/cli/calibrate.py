"""opmark calibrate"""

from __future__ import annotations

from opmark.api.requests import CalibrateRequest
from opmark.cli.options import Json, takes
from opmark.cli.output import console, print_json_lines


@takes(CalibrateRequest)
def calibrate(request: CalibrateRequest, as_json: Json = False) -> None:
    from opmark.api.calibrate import calibrate_request, datasheet_peaks
    from opmark.report.console.machine import peaks_text

    peaks = calibrate_request(request)
    if as_json:
        print_json_lines([peaks])
    else:
        console().print(peaks_text(peaks, datasheet_peaks(peaks)))
