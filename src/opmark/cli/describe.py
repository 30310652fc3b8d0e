"""opmark describe"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from opmark.cli.output import console, print_json_lines
from opmark.errors import UnknownName, nearest

if TYPE_CHECKING:
    from opmark.schema import Peaks


def describe(
    op: Annotated[str, typer.Argument(help="An operator, as in `opmark list ops`, a quantity, or a chip.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Parameters, presets, cost and implementations of an operator; what a quantity is; what a chip can do."""
    from opmark import api
    from opmark.hardware.datasheets import datasheet, datasheets, names
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
        if chip := datasheet(op):
            _describe_chip(chip, as_json)
            return
        if near := nearest(op, [*QUANTITIES, *(name for peaks in datasheets() for name in names(peaks))]):
            raise UnknownName("operator", op, [near]) from None
        raise
    if as_json:
        print_json_lines([operator_view(operator)])
    else:
        console().print(operator_text(operator))


def _describe_chip(chip: Peaks, as_json: bool) -> None:
    from opmark.hardware.sheet import brief
    from opmark.report.hardware import hardware_text

    if as_json:
        print_json_lines([brief(chip)])
    else:
        console().print(hardware_text(chip))
