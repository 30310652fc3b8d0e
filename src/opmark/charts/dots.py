"""Fewer dots, where too many lie on each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from opmark.analysis.rows import Row, Timing

_STEPS = (64, 32, 16, 8, 4, 2, 1)
"""Places a decade that dots are told apart by, ever fewer: a hundredth of a decade is the width of a line."""

_Any = TypeVar("_Any")
Spot = tuple[Hashable, float, float]
"""What a dot is one of, and its two values, both above 0."""


class Dot(NamedTuple):
    """A dot of a roofline."""

    row: Row
    timing: Timing
    intensity: float
    rate: float

    @property
    def spot(self) -> Spot:
        row, timing = self.row, self.timing
        kind = (row.backend, row.implementation, timing.quantity, timing.cache, row.dtype)
        return kind, self.intensity, self.rate


def thinned(dots: Sequence[_Any], most: int, spot: Callable[[_Any], Spot]) -> list[_Any]:
    """At most so many: of those of one kind that lie close together the first is kept."""
    kept = list(dots)
    for steps in _STEPS:
        if len(kept) <= most:
            return kept
        kept = list({_cell(spot(dot), steps): dot for dot in reversed(kept)}.values())[::-1]
    return [kept[i * len(kept) // most] for i in range(most)] if len(kept) > most else kept


def _cell(spot: Spot, steps: int) -> tuple[Hashable, int, int]:
    kind, *values = spot
    x, y = (math.floor(steps * math.log10(value)) for value in values)
    return kind, x, y
