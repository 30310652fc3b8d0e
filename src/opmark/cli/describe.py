"""opmark describe"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from opmark.cli.output import console, print_json_lines
from opmark.errors import UnknownName, nearest

if TYPE_CHECKING:
    from opmark.schema import Peaks

_FEW = 8
"""Number of chips that fit into a hint."""


def describe(
    op: Annotated[str, typer.Argument(help="An operator, as in `opmark list ops`, a quantity, or a chip.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    from opmark.api.describe import describe as find_operator
    from opmark.api.describe import find_chip
    from opmark.report.console.operators import operator_text, operator_view, quantity_text
    from opmark.schema import QUANTITIES

    if op in QUANTITIES:
        if as_json:
            print_json_lines([QUANTITIES[op]])
        else:
            console().print(quantity_text(QUANTITIES[op]))
        return
    try:
        operator = find_operator(op)
    except UnknownName as unknown:
        if chip := find_chip(op):
            _describe_chip(chip, as_json)
            return
        raise _with_chips(unknown, op) from None
    if as_json:
        print_json_lines([operator_view(operator)])
    else:
        console().print(operator_text(operator))


def _with_chips(unknown: UnknownName, name: str) -> UnknownName:
    """Extend the hint by the chips whose names contain `name`; if there are none, by the nearest quantity or chip."""
    from opmark.api.list_ import chips as known_chips
    from opmark.schema import QUANTITIES

    known = known_chips()
    folded = name.casefold()
    chips = [peaks.chip for peaks, names in known if any(folded in other.casefold() for other in names)]
    if len(chips) == 1:
        unknown.hint = f"did you mean `{chips[0]}`?"
        return unknown
    if chips and folded:
        more = ", ... as in `opmark list chips`" if len(chips) > _FEW else ""
        unknown.hint = f"{unknown.hint}; chips: {', '.join(chips[:_FEW])}{more}"
        return unknown
    near = nearest(name, [*QUANTITIES, *(other for _, names in known for other in names)])
    if near:
        return UnknownName("operator", name, [near])
    if unknown.hint and "did you mean" not in unknown.hint:
        unknown.hint = f"{unknown.hint}, `opmark list chips` the chips"
    return unknown


def _describe_chip(chip: Peaks, as_json: bool) -> None:
    from opmark.api.describe import chip_view
    from opmark.report.console.machine import hardware_text

    if as_json:
        print_json_lines([chip_view(chip)])
    else:
        console().print(hardware_text(chip))
