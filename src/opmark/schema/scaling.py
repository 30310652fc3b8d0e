"""Resize a case: double or halve the sizes of its operator as far as the operator's rules allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import Any

from opmark.errors import InvalidParameter
from opmark.schema.dtype import sizeof
from opmark.schema.operator import Operator
from opmark.schema.param import Params

Place = tuple[str, int | None]
"""A parameter, and the index within it where it is a shape."""

_MOST_FLOPS = 2 * 10**12
_STEPS = 64
# Doubling a size is worthwhile if the data grows at least this much; a kernel size or a stride makes it grow less.
_LEAST_GROWTH = 1.4


def elements(operator: Operator, params: Params) -> int:
    """Return the number of elements of all inputs and outputs."""
    outputs = operator.cost(params).bytes_written // sizeof(operator.result_dtype(params))
    return outputs + sum(spec.elements for spec in operator.inputs(params).values())


def places(operator: Operator, params: Params) -> dict[Place, int]:
    """Return the value of every parameter, or part of one, that is a size."""
    found: dict[Place, int] = {}
    for param in operator.params:
        value = params[param.name]
        if param.kind in ("size", "bytes") or (param.kind == "count" and value > 1):
            found[param.name, None] = value
        elif param.kind in ("shape", "counts"):
            found |= {(param.name, i): n for i, n in enumerate(value)}
    return found


def resized(params: Params, at: Sequence[Place], by: Callable[[int], int]) -> dict[str, Any]:
    changed = dict(params)
    for name, index in at:
        value = changed[name]
        changed[name] = by(value) if index is None else [by(n) if i == index else n for i, n in enumerate(value)]
    return changed


def allowed(operator: Operator, params: Params) -> bool:
    try:
        operator.check_rules(params)
    except InvalidParameter:
        return False
    return True


def of_elements(operator: Operator, params: Params, target: int) -> dict[str, Any] | None:
    """Return parameters with about `target` elements in and out, or None if the operator has no such size."""
    found = dict(params)
    if not elements(operator, found):  # a barrier has no size
        return None
    for _ in range(_STEPS):
        ratio = target / elements(operator, found)
        if 2**-0.5 <= ratio <= 2**0.5:
            break
        step = _double(operator, found) if ratio > 1 else _halve(operator, found)
        # A step may change two sizes at once and overshoot: stop if it leads further away.
        if step is None or abs(log(ratio)) < abs(log(target / elements(operator, step))):
            break
        found = step
    reached = 0.25 <= target / elements(operator, found) <= 4
    return found if reached and (operator.cost(found).flops or 0) <= _MOST_FLOPS else None


def _double(operator: Operator, params: Params) -> dict[str, Any] | None:
    """Double the smallest size that makes enough difference, so that shapes stay balanced."""
    before = elements(operator, params)
    for at in _by_value(operator, params, largest=False):
        larger = resized(params, at, lambda n: 2 * n)
        if allowed(operator, larger) and elements(operator, larger) >= _LEAST_GROWTH * before:
            return larger
    return None


def _halve(operator: Operator, params: Params) -> dict[str, Any] | None:
    """Halve the largest size that makes enough difference."""
    before = elements(operator, params)
    for at in _by_value(operator, params, largest=True):
        smaller = resized(params, at, lambda n: max(1, n // 2))
        if allowed(operator, smaller) and elements(operator, smaller) * _LEAST_GROWTH <= before:
            return smaller
    return None


def _by_value(operator: Operator, params: Params, *, largest: bool) -> list[list[Place]]:
    """Return each size alone, then equal sizes together: some rules allow only to change them together."""
    found = places(operator, params)
    alone = [[place] for place in sorted(found, key=lambda place: found[place], reverse=largest)]
    return alone + [[p for p in found if found[p] == n] for n in sorted(set(found.values()), reverse=largest)]
