"""Where names can be written without covering marks or each other: a grid of small squares, taken or free."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from opmark.report.drawing.panel import Panel

_SQUARE = 9.0
LINE, MARK, _TEXT = 2, 12, 60
"""What a square weighs that has a line, a mark or words in it."""


class Spoken(NamedTuple):
    """A name at a place: where it begins, in which direction it runs (degrees), how long it is."""

    x: float
    y: float
    turn: float
    length: float


class Room:
    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._taken: dict[tuple[int, int], int] = {}

    def take(self, places: Iterable[tuple[float, float]], weight: int = MARK) -> None:
        for x, y in places:
            square = int(x / _SQUARE), int(y / _SQUARE)
            self._taken[square] = max(weight, self._taken.get(square, 0))

    def best(self, candidates: Sequence[Spoken]) -> Spoken | None:
        """The first of those that cover least; it is taken from then on. None if none lies inside."""
        inside = [one for one in candidates if self._inside(one)]
        if not inside:
            return None
        chosen = min(inside, key=self.cost)
        self.write(chosen)
        return chosen

    def write(self, one: Spoken) -> None:
        for square in _squares(one):
            self._taken[square] = _TEXT

    def cost(self, one: Spoken, least: int = 0) -> int:
        """How much it covers, of what weighs at least so much."""
        found = (self._taken.get(square, 0) for square in _squares(one))
        return sum(weight for weight in found if weight >= least)

    def _inside(self, one: Spoken) -> bool:
        panel, (end_x, end_y) = self._panel, _end(one)
        across = all(panel.left <= x <= panel.right + 1 for x in (one.x, end_x))
        return across and all(panel.top <= y <= panel.bottom for y in (one.y, end_y))


def _end(one: Spoken) -> tuple[float, float]:
    angle = math.radians(one.turn)
    return one.x + one.length * math.cos(angle), one.y + one.length * math.sin(angle)


def _squares(one: Spoken) -> set[tuple[int, int]]:
    """Beneath the words: along their foot, and half a line above it."""
    angle = math.radians(one.turn)
    steps = max(1, math.ceil(one.length / (_SQUARE / 2)))
    found = set()
    for step in range(steps + 1):
        along = one.length * step / steps
        for above in (0.0, 5.0, 10.0):
            x = one.x + along * math.cos(angle) + above * math.sin(angle)
            y = one.y + along * math.sin(angle) - above * math.cos(angle)
            found.add((int(x / _SQUARE), int(y / _SQUARE)))
    return found
