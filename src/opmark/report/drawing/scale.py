"""Where a value lies on an axis, from 0 to 1. Ranges are those of the data with a little air, not whole decades."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from opmark.schema.chart import Axis

LARGEST = 1e300
"""Beyond it (and, on a logarithmic axis, below its inverse) the arithmetic of an axis would overflow."""
_AIR = 0.04
"""Of the range, left free at either end."""
_ALIKE = 1e-9
"""Relative: values that are nearer to each other have no range of their own."""
_NEAR_ZERO = 0.35
"""If the least value is below this part of the greatest, 0 is worth showing."""
_FARTHEST = 307.0
"""Exponents of ten that a number can have."""
_DECADES = math.log10(3)
"""Air on either side of what has no range."""


class Linear(NamedTuple):
    low: float
    high: float

    def place(self, value: float) -> float:
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def value(self, place: float) -> float:
        return self.low + place * (self.high - self.low)


class Log(NamedTuple):
    low: float
    high: float
    """Exponents of ten."""
    base: int = 10
    """Ticks are at its powers."""

    def place(self, value: float) -> float:
        return min(1.0, max(0.0, (math.log10(value) - self.low) / (self.high - self.low)))

    def value(self, place: float) -> float:
        return math.pow(10, self.low + place * (self.high - self.low))


class Places(NamedTuple):
    """A place for each name, in the middle of its stretch."""

    names: tuple[str, ...]

    def place(self, value: float) -> float:
        return min(1.0, max(0.0, (value + 0.5) / max(1, len(self.names))))

    def value(self, place: float) -> float:
        return place * max(1, len(self.names)) - 0.5


Scaled = Linear | Log | Places


def drawable(axis: Axis, value: float | None) -> bool:
    """Whether it has a place on such an axis at all."""
    if value is None or not abs(value) < LARGEST:  # also of what is no number
        return False
    if axis.scale == "category":
        return -0.5 <= value <= len(axis.names) - 0.5
    return axis.scale == "linear" or value > 1 / LARGEST


def fitting(axis: Axis, values: Iterable[float], *, zero: bool = False) -> Scaled:
    """All of these lie inside, unless the axis has an end of its own. `zero`: bars have their foot there."""
    if axis.scale == "category":
        return Places(axis.names)
    found = [value if axis.most is None else min(value, axis.most) for value in values]
    if axis.scale == "linear":
        return _linear([*found, 0.0] if zero else found)
    return _logarithmic(found, 2 if axis.scale == "log2" else 10)


def _linear(found: list[float]) -> Linear:
    low, high = min(found, default=0.0), max(found, default=1.0)
    largest = max(abs(low), abs(high))
    if high - low <= max(_ALIKE * largest, 1 / LARGEST):
        around = largest * 0.05 if largest > 1 / LARGEST else 1.0
        return Linear(low - around, high + around)
    if 0 < low <= _NEAR_ZERO * high:
        low = 0.0
    elif _NEAR_ZERO * low <= high < 0:
        high = 0.0
    air = _AIR * (high - low)
    return Linear(low - air if low else 0.0, high + air if high else 0.0)


def _logarithmic(found: list[float], base: int) -> Log:
    low, high = math.log10(min(found, default=1.0)), math.log10(max(found, default=10.0))
    if high - low <= _ALIKE:
        return Log(low - _DECADES, high + _DECADES, base)
    air = _AIR * (high - low)
    return Log(max(low - air, -_FARTHEST), min(high + air, _FARTHEST), base)
