"""Ticks: round numbers inside the range of an axis, from 2 to 12 of them, and no more than there is room for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from opmark.report.drawing.labels import single, together
from opmark.report.drawing.scale import Linear, Log, Places
from opmark.schema.chart import Unit

MOST = 12
_ROUND = (1, 2, 5)
_STRIDES = (1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 50, 100, 200, 500, 1000, 2500)
_EDGE = 1e-9
"""What is this near to an end of the range is inside."""
_TWO = math.log10(2)
_WIDE = 2.0
"""Decades; what spans more gets ticks at powers of ten only."""
_FINE = 8.0
"""Decades; what spans more gets no lines between them."""


class Tick(NamedTuple):
    value: float
    place: float
    text: str


class Ticks(NamedTuple):
    labelled: list[Tick]
    between: list[float]
    """Places of thinner lines."""


def ticks(scale: Linear | Log, unit: Unit, most: int = MOST) -> Ticks:
    if isinstance(scale, Linear):
        return _even(scale, unit, most)
    return _powers_of_two(scale, unit, most) if scale.base == 2 else _decades(scale, unit, most)


def roomy(scale: Linear | Log, unit: Unit, fits: Callable[[list[Tick]], bool], most: int = MOST) -> Ticks:
    """As many as fit; the fewest where even those do not."""
    found = ticks(scale, unit, most)
    for fewer in range(most - 1, 1, -1):
        if fits(found.labelled):
            break
        found = ticks(scale, unit, fewer)
    return found


def apart(length: float, size: Callable[[str], float], gap: float) -> Callable[[list[Tick]], bool]:
    """Whether no two labels touch, on an axis of this length."""

    def fits(found: list[Tick]) -> bool:
        return all((b.place - a.place) * length >= (size(a.text) + size(b.text)) / 2 + gap for a, b in pairwise(found))

    return fits


def names(scale: Places, step: int = 1) -> list[Tick]:
    return [Tick(i, scale.place(i), name) for i, name in enumerate(scale.names) if i % step == 0]


def _even(scale: Linear | Log, unit: Unit, most: int) -> Ticks:
    """Also of a logarithmic axis so short that no power lies on it."""
    low, high = scale.value(0), scale.value(1)
    values = _multiples(low, high, max(2, most))
    return Ticks([
        Tick(value, scale.place(value), text)
        for value, text in zip(values, together(values, unit), strict=True)
    ], [])  # fmt: skip


def _multiples(low: float, high: float, most: int) -> list[float]:
    """Of the least round step that gives at most so many, and of the next smaller ones where that gives fewer than
    two."""
    span = high - low
    power = math.floor(math.log10(span / most))
    steps = [round_ * math.pow(10, power + more) for more in (0, 1) for round_ in _ROUND]
    found: list[float] = []
    for step in steps:
        found = _inside(low, high, step)
        if len(found) <= most:
            break
    return found if len(found) >= 2 else [low, high]


def _inside(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - _EDGE), math.floor(high / step + _EDGE)
    return [k * step for k in range(first, last + 1)]


def _decades(scale: Log, unit: Unit, most: int) -> Ticks:
    first, last = math.ceil(scale.low - _EDGE), math.floor(scale.high + _EDGE)
    if scale.high - scale.low < _WIDE:
        found = [exponent for exponent in _one_two_five(first - 1, last) if _within(scale, exponent)]
        if 3 <= len(found) <= most:
            return Ticks([_tick(scale, exponent, unit) for exponent in found], list(_ninths(scale, first - 1, last)))
    if last - first < (2 if scale.high - scale.low < 1 else 1):
        return _even(scale, unit, most)
    chosen = _every(first, last, most)
    if len(chosen) == last - first + 1:
        fine = scale.high - scale.low <= _FINE
        between = list(_ninths(scale, first - 1, last)) if fine else []
    else:
        between = [scale.place(math.pow(10, k)) for k in range(first, last + 1) if k not in chosen]
    return Ticks([_tick(scale, k, unit) for k in chosen], between)


def _one_two_five(first: int, last: int) -> Iterable[float]:
    return (k + math.log10(one) for k in range(first, last + 1) for one in _ROUND)


def _ninths(scale: Log, first: int, last: int) -> Iterable[float]:
    exponents = (k + math.log10(one) for k in range(first, last + 1) for one in range(2, 10))
    return (_place(scale, one) for one in exponents if _within(scale, one))


def _powers_of_two(scale: Log, unit: Unit, most: int) -> Ticks:
    first, last = math.ceil(scale.low / _TWO - _EDGE), math.floor(scale.high / _TWO + _EDGE)
    if last - first < 1:
        return _even(scale, unit, most)
    chosen = _every(first, last, most)
    between = [_place(scale, k * _TWO) for k in range(first, last + 1) if k not in chosen]
    made = [Tick(math.ldexp(1, k), scale.place(math.ldexp(1, k)), "") for k in chosen]
    return Ticks([tick._replace(text=single(tick.value, unit, binary=True)) for tick in made], between)


def _every(first: int, last: int, most: int) -> list[int]:
    """Exponents: multiples of the least stride that gives few enough; from the first on where those are fewer than
    two."""
    for stride in _STRIDES:
        found = [k for k in range(first, last + 1) if k % stride == 0]
        if len(found) <= max(2, most):
            break
    return found if len(found) >= 2 else [first, last]


def _within(scale: Log, exponent: float) -> bool:
    return scale.low - _EDGE <= exponent <= scale.high + _EDGE


def _place(scale: Log, exponent: float) -> float:
    return min(1.0, max(0.0, (exponent - scale.low) / (scale.high - scale.low)))


def _tick(scale: Log, exponent: float, unit: Unit) -> Tick:
    value = float(f"{math.pow(10, exponent):.3g}")
    return Tick(value, scale.place(value), single(value, unit))
