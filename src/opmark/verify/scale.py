"""Makes a case smaller that is too large to check in full: same operator, same dtype, same options."""

from __future__ import annotations

from typing import Any

from opmark.schema import Operator, Params
from opmark.schema.scaling import Place, allowed, elements, places, resized

# The reference then takes a fraction of a second and a few tens of megabytes.
MAX_FLOPS = 500_000_000
MAX_ELEMENTS = 1 << 22


def too_large(operator: Operator, params: Params, evaluations: int = 1) -> bool:
    """Whether computing the reference so many times would take too long, or too much memory."""
    limit = MAX_ELEMENTS if evaluations == 1 else MAX_ELEMENTS // 4
    return evaluations * (operator.cost(params).flops or 0) > MAX_FLOPS or elements(operator, params) > limit


def scale_down(operator: Operator, params: Params, evaluations: int = 1) -> dict[str, Any]:
    """Parameters of a smaller case: the largest size is halved again and again until the case is small enough to check.

    Rules of the operator hold at every step. Where they do not let a size go alone, all sizes of the same value go
    together (queries and keys of a causal attention, channels and groups of a depthwise convolution), or it stays. So
    does what makes the work no less (a stride). Where nothing goes any more, everything goes at once.
    """
    scaled, fixed = dict(params), set[Place]()
    while too_large(operator, scaled, evaluations):
        sizes = {place: n for place, n in places(operator, scaled).items() if place not in fixed and n > 1}
        if not sizes:
            every = [place for place, n in places(operator, scaled).items() if n > 1]
            smaller = resized(scaled, every, lambda n: n // 2)
            if not allowed(operator, smaller) or _work(operator, smaller) >= _work(operator, scaled):
                return scaled
            scaled = smaller
            fixed.clear()
            continue
        largest = max(sizes, key=lambda place: sizes[place])
        alike = [place for place, n in sizes.items() if n == sizes[largest]]
        for at in ([largest], alike):
            smaller = resized(scaled, at, lambda n: n // 2)
            if allowed(operator, smaller) and _work(operator, smaller) < _work(operator, scaled):
                scaled = smaller
                break
        else:
            fixed.add(largest)
    return scaled


def _work(operator: Operator, params: Params) -> float:
    cost = operator.cost(params)
    return (cost.flops or 0) / MAX_FLOPS + elements(operator, params) / MAX_ELEMENTS
