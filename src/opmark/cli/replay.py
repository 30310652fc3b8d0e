"""opmark replay"""

from __future__ import annotations

from dataclasses import replace as replace_fields
from typing import Annotated

import typer

from opmark.api.program_requests import ReplayRequest
from opmark.api.requests import talk
from opmark.cli.options import NoColor, Wide, takes
from opmark.cli.output import TableStyle, console, print_json_lines, print_records


@takes(ReplayRequest)
def replay(
    request: ReplayRequest,
    wide: Wide = False,
    no_color: NoColor = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per backend and rank.")] = False,
) -> None:
    from opmark.api.replay import replay_request
    from opmark.cli.progress import ProgressBar
    from opmark.report.console.replay import print_replay

    style = TableStyle(False, wide, no_color)
    with ProgressBar(style, as_json=as_json) as progress:
        try:
            found = replay_request(
                replace_fields(request, on_start=progress.start, on_record=progress.advance, say=progress.say)
            )
        except KeyboardInterrupt:
            progress.interrupted(request.db)
            raise typer.Exit(130) from None
    if as_json:
        print_json_lines(found.rows())
    else:
        print_records(found.result.records, found.result.peaks, style)
        for report in found.reports:
            print_replay(report, console(wide=wide, no_color=no_color))
    if request.trace_out is not None and found.reports:
        talk(f"recorded and replayed side by side: {request.trace_out} (open it at ui.perfetto.dev)")
    talk(found.result.storage)
    if found.result.exit_code:
        raise typer.Exit(found.result.exit_code)
