"""A case that is too large to check in full, made smaller: same operator, same dtype, same options."""

from __future__ import annotations

from typing import Any

from opmark.errors import InvalidParameter
from opmark.schema import Operator, Params

# The reference then takes a fraction of a second and a few tens of megabytes.
MAX_FLOPS = 500_000_000
MAX_ELEMENTS = 1_000_000


def too_large(operator: Operator, params: Params) -> bool:
    elements = sum(spec.elements for spec in operator.inputs(params).values())
    cost = operator.cost(params)
    return cost.flops > MAX_FLOPS or max(elements, cost.bytes_written // 2) > MAX_ELEMENTS


def scale_down(operator: Operator, params: Params) -> dict[str, Any]:
    """Halves the largest size again and again until the case is small enough to check.

    Rules of the operator hold at every step: a size that they do not let go is left alone.
    """
    scaled, fixed = dict(params), set[tuple[str, int | None]]()
    while too_large(operator, scaled):
        sizes = [entry for entry in _sizes(operator, scaled) if entry[0] not in fixed and entry[1] > 1]
        if not sizes:
            return scaled
        place, value = max(sizes, key=lambda entry: entry[1])
        smaller = _with(scaled, place, value // 2)
        if _allowed(operator, smaller):
            scaled = smaller
        else:
            fixed.add(place)
    return scaled


def _sizes(operator: Operator, params: Params) -> list[tuple[tuple[str, int | None], int]]:
    """((parameter, index within a shape), value) of everything that is a size."""
    found: list[tuple[tuple[str, int | None], int]] = []
    for param in operator.params:
        value = params[param.name]
        if param.kind == "size":
            found.append(((param.name, None), value))
        elif param.kind == "shape":
            found += [((param.name, i), n) for i, n in enumerate(value)]
    return found


def _with(params: Params, place: tuple[str, int | None], value: int) -> dict[str, Any]:
    name, index = place
    if index is None:
        return {**params, name: value}
    return {**params, name: [value if i == index else n for i, n in enumerate(params[name])]}


def _allowed(operator: Operator, params: Params) -> bool:
    try:
        operator.check_rules(params)
    except InvalidParameter:
        return False
    return True
