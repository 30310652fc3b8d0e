"""Dots of the roofline, and fewer of them where too many lie on each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from opmark.schema.item import Item, Timing

_STEPS = (64, 32, 16, 8, 4)
"""Places a decade that dots are told apart by, ever fewer: a hundredth of a decade is the width of a line."""


class Dot(NamedTuple):
    item: Item
    timing: Timing
    intensity: float
    rate: float


def thinned(dots: Sequence[Dot], most: int) -> list[Dot]:
    """At most so many: of those that lie close together in one series the first is kept."""
    kept = list(dots)
    for steps in _STEPS:
        if len(kept) <= most:
            break
        kept = list({_cell(dot, steps): dot for dot in reversed(kept)}.values())[::-1]
    return kept[:most]


def _cell(dot: Dot, steps: int) -> tuple[str, str, str, str, int, int]:
    x, y = (math.floor(steps * math.log10(value)) for value in (dot.intensity, dot.rate))
    return (dot.item.backend, dot.item.implementation, dot.timing.cache, dot.item.dtype, x, y)
