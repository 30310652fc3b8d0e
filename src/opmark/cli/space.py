"""opmark space"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opmark.api.requests import SpaceRequest, talk
from opmark.cli.options import takes
from opmark.cli.output import console, print_json_lines, write_out
from opmark.units import count_noun


@takes(SpaceRequest)
def space(
    request: SpaceRequest,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the spaces to this JSON file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per space.")] = False,
) -> None:
    from opmark.api.space import space_request
    from opmark.report.console.tuning import space_tables
    from opmark.report.text import json_line

    exported = space_request(request)
    if output is not None:
        write_out(json_line({"spaces": exported}) + "\n", output)
        talk(f"wrote {count_noun(len(exported), 'space')} to {output}")
    elif as_json:
        print_json_lines(exported)
    else:
        for table in space_tables(exported):
            console().print(table)
