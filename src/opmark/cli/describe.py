"""opmark describe"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.cli.output import console, print_json_lines


def describe(
    op: Annotated[str, typer.Argument(help="An operator, as in `opmark list ops`.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Parameters, presets, cost and implementations of an operator."""
    from opmark import api
    from opmark.report.operator import operator_text, operator_view

    operator = api.describe(op)
    if as_json:
        print_json_lines([operator_view(operator)])
    else:
        console().print(operator_text(operator))
