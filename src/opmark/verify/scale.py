"""A case that is too large to check in full, made smaller: same operator, same dtype, same options."""

from __future__ import annotations

from typing import Any

from opmark.errors import InvalidParameter
from opmark.schema import Operator, Params
from opmark.schema.dtype import sizeof

# The reference then takes a fraction of a second and a few tens of megabytes.
MAX_FLOPS = 500_000_000
MAX_ELEMENTS = 1 << 22

Place = tuple[str, int | None]
"""A parameter, and the index within it where it is a shape."""


def too_large(operator: Operator, params: Params, evaluations: int = 1) -> bool:
    """Whether computing the reference so many times would take too long, or too much memory."""
    limit = MAX_ELEMENTS if evaluations == 1 else MAX_ELEMENTS // 4
    return evaluations * (operator.cost(params).flops or 0) > MAX_FLOPS or _elements(operator, params) > limit


def scale_down(operator: Operator, params: Params, evaluations: int = 1) -> dict[str, Any]:
    """Halves the largest size again and again until the case is small enough to check.

    Rules of the operator hold at every step. Where they do not let a size go alone, all sizes of the same value go
    together (queries and keys of a causal attention, channels and groups of a depthwise convolution), or it stays. So
    does what makes the work no less (a stride).
    """
    scaled, fixed = dict(params), set[Place]()
    while too_large(operator, scaled, evaluations):
        sizes = {place: n for place, n in _sizes(operator, scaled).items() if place not in fixed and n > 1}
        if not sizes:
            return scaled
        largest = max(sizes, key=lambda place: sizes[place])
        alike = [place for place, n in sizes.items() if n == sizes[largest]]
        for places in ([largest], alike):
            smaller = _halved(scaled, places)
            if _allowed(operator, smaller) and _work(operator, smaller) < _work(operator, scaled):
                scaled = smaller
                break
        else:
            fixed.add(largest)
    return scaled


def _work(operator: Operator, params: Params) -> float:
    cost = operator.cost(params)
    return (cost.flops or 0) / MAX_FLOPS + _elements(operator, params) / MAX_ELEMENTS


def _elements(operator: Operator, params: Params) -> int:
    """In and out."""
    outputs = operator.cost(params).bytes_written // sizeof(operator.result_dtype(params))
    return outputs + sum(spec.elements for spec in operator.inputs(params).values())


def _sizes(operator: Operator, params: Params) -> dict[Place, int]:
    """The value of everything that is a size."""
    found: dict[Place, int] = {}
    for param in operator.params:
        value = params[param.name]
        if param.kind == "size":
            found[param.name, None] = value
        elif param.kind == "shape":
            found |= {(param.name, i): n for i, n in enumerate(value)}
    return found


def _halved(params: Params, places: list[Place]) -> dict[str, Any]:
    smaller = dict(params)
    for name, index in places:
        value = smaller[name]
        smaller[name] = value // 2 if index is None else [n // 2 if i == index else n for i, n in enumerate(value)]
    return smaller


def _allowed(operator: Operator, params: Params) -> bool:
    try:
        operator.check_rules(params)
    except InvalidParameter:
        return False
    return True
