"""opmark judge"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from opmark.api.requests import JudgeRequest, talk
from opmark.cli.options import Json, takes
from opmark.cli.output import console, print_json_lines, write_out
from opmark.files import check_writable


@takes(JudgeRequest)
def judge(
    request: JudgeRequest,
    trace: Annotated[
        Path | None, typer.Option(help="Also write the answer to this file, in flashinfer-bench's trace form.")
    ] = None,
    as_json: Json = False,
) -> None:
    from opmark.api.judge import judge_request
    from opmark.report.console.judgement import judgement_lines
    from opmark.report.formats.trace import judgement_trace
    from opmark.report.text import json_line

    check_writable(trace)
    try:
        found = judge_request(replace(request, on_pair=_announce))
    except KeyboardInterrupt:
        talk("interrupted: nothing is decided")
        raise typer.Exit(130) from None
    if trace is not None:
        write_out(json_line(judgement_trace(found)) + "\n", trace)
    if as_json:
        print_json_lines([found])
    else:
        for line in judgement_lines(found):
            console().print(line, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(found.exit_code)


def _announce(pair: int, until: int) -> None:
    if sys.stderr.isatty():
        talk(f"pair {pair} of {until}")
