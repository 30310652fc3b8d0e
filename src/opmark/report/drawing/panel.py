"""The rectangle in which marks lie, and series with their places in it."""

from __future__ import annotations

from typing import NamedTuple

from opmark.report.drawing.looks import Look
from opmark.schema.chart import Mark, Series

WIDTH = 720.0
"""Of a picture, in its own units; a page makes it larger or smaller."""


class Panel(NamedTuple):
    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def across(self, place: float) -> float:
        return self.left + place * self.width

    def up(self, place: float) -> float:
        return self.top + (1 - place) * self.height

    def down(self, place: float) -> float:
        return self.top + place * self.height


class Spot(NamedTuple):
    """A mark with its place in the picture."""

    i: int
    x: float
    y: float
    ends: tuple[float, float] | None
    """Of its interval: of y, or of x where values go to the right."""
    mark: Mark


class Drawn(NamedTuple):
    series: Series
    look: Look
    spots: list[Spot]
    radius: float
    """Of a point."""
    foot: float = 0.0
    """Where bars begin."""
    thick: float = 0.0
    """Of a bar."""
    sideways: bool = False
    """Values go to the right."""
