"""opmark capture"""

from __future__ import annotations

import typer

from opmark.api.program_requests import CaptureRequest
from opmark.cli.options import Json, NoColor, Wide, takes
from opmark.cli.output import console, print_json_lines


@takes(CaptureRequest)
def capture(request: CaptureRequest, wide: Wide = False, no_color: NoColor = False, as_json: Json = False) -> None:
    from opmark.api.capture import capture_program
    from opmark.report.console.hotspots import print_hotspots

    found = capture_program(request)
    if as_json:
        print_json_lines([found.profile if found.profile is not None else {"files": [*map(str, found.files)]}])
    elif found.profile is not None:
        print_hotspots(found.profile, console(wide=wide, no_color=no_color))
    raise typer.Exit(found.exit_code)


capture.context_settings = {"allow_interspersed_args": False}  # type: ignore[attr-defined]
"""Options behind the program are the program's."""
