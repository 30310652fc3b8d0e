"""opmark doctor"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.cli.output import console, print_json_lines


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Is this machine fit to measure on? What it has, what runs, what would disturb."""
    from opmark.report.diagnosis import diagnosis_text
    from opmark.runner.doctor import doctor as examine

    diagnosis = examine()
    if as_json:
        print_json_lines([diagnosis])
    else:
        console().print(diagnosis_text(diagnosis))
