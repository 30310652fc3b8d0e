"""opmark ledger"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from opmark.api.program_requests import LedgerRequest
from opmark.api.requests import talk
from opmark.cli.options import NoColor, Wide, takes
from opmark.cli.output import TableStyle, console, print_json_lines
from opmark.schema.case import MODEL_PREFIX


@takes(LedgerRequest)
def ledger(
    request: LedgerRequest,
    wide: Wide = False,
    no_color: NoColor = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per model and backend.")] = False,
) -> None:
    from opmark.api.ledger import ledger_request
    from opmark.cli.progress import ProgressBar
    from opmark.report.console.ledger import print_ledger

    with ProgressBar(TableStyle(False, wide, no_color), as_json=as_json) as progress:
        try:
            found, result = ledger_request(
                replace(request, on_start=progress.start, on_record=progress.advance, say=progress.say)
            )
        except KeyboardInterrupt:
            progress.interrupted(request.db)
            raise typer.Exit(130) from None
    if as_json:
        print_json_lines(found)
    else:
        out = console(wide=wide, no_color=no_color)
        for one in found:
            print_ledger(one, out)
    if request.what and request.what.startswith(MODEL_PREFIX):  # else it was stored before
        talk(result.storage)
