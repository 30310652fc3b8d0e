"""opmark describe"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.cli.output import console, print_json_lines
from opmark.errors import UnknownName, nearest


def describe(
    op: Annotated[str, typer.Argument(help="An operator, as in `opmark list ops`, or a quantity.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Parameters, presets, cost and implementations of an operator; or what a quantity is."""
    from opmark import api
    from opmark.report.operator import operator_text, operator_view
    from opmark.report.quantity import quantity_text
    from opmark.schema import QUANTITIES

    if op in QUANTITIES:
        if as_json:
            print_json_lines([QUANTITIES[op]])
        else:
            console().print(quantity_text(QUANTITIES[op]))
        return
    try:
        operator = api.describe(op)
    except UnknownName:
        if near := nearest(op, QUANTITIES):
            raise UnknownName("operator", op, [near]) from None
        raise
    if as_json:
        print_json_lines([operator_view(operator)])
    else:
        console().print(operator_text(operator))
