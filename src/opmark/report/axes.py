"""Logarithmic axes of a terminal: whole decades of a quantity, powers of two of a size, places between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from opmark import units

_STEPS = (1, 2, 5, 10)
"""Powers of two from label to label."""


class Axis(NamedTuple):
    base: int
    low: int
    """The exponent at which it begins."""
    high: int
    """Always above `low`."""

    def place(self, value: float) -> float:
        """Between 0 and 1."""
        return (math.log(value, self.base) - self.low) / (self.high - self.low)

    def value(self, place: float) -> float:
        return math.pow(self.base, self.low + place * (self.high - self.low))

    def ticks(self, most: int) -> list[int]:
        """Exponents to label: all of them, or every so many that no more than `most` are left."""
        for step in _STEPS:
            found = [k for k in range(self.low, self.high + 1) if k % step == 0]
            if len(found) <= most:
                break
        return found


def axis(values: Iterable[float], base: int) -> Axis:
    """From the power below the least to the power above the greatest."""
    found = list(values)
    low = math.floor(math.log(min(found), base) + 1e-9)
    high = math.ceil(math.log(max(found), base) - 1e-9)
    return Axis(base, low, max(high, low + 1))


def time_label(exponent: int) -> str:
    """`100 µs` for -4."""
    scale, unit = units.seconds_unit(10.0**exponent * 1.000001)  # in binary, a power of ten may be less than itself
    return f"{10.0**exponent / scale:.6g} {unit}"
