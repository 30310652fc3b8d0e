"""opmark extract"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opmark.api.program_requests import ExtractRequest
from opmark.api.requests import talk
from opmark.cli.options import takes
from opmark.cli.output import console, print_json_lines, write_out
from opmark.files import check_writable
from opmark.units import count_noun


@takes(ExtractRequest)
def extract(
    request: ExtractRequest,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the workload to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per operator.")] = False,
) -> None:
    from opmark.api.extract import FusedGraph, extract_request
    from opmark.report.console.ledger import kernels_table

    check_writable(output)
    found = extract_request(request)
    if isinstance(found, FusedGraph):
        if as_json:
            print_json_lines({"kernel": kind, "count": count} for kind, count in found.kernels.items())
        else:
            console().print(kernels_table(found.kernels or found.operators))
            talk(
                f"{found.backend} runs {count_noun(sum(found.kernels.values()), 'kernel')}; fused kernels cannot be "
                "run one by one"
            )
        return
    for problem in found.problems:
        talk(f"not written: {problem}")
    if as_json:
        print_json_lines(found.workload.cases)
    else:
        write_out(found.text, output)
    talk(found.summary + (f", in {output}" if output else ""))
    if found.problems:
        raise typer.Exit(1)
