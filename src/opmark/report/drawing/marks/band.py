"""A line with points, and the intervals of these as an area."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.report.drawing.marks import line, points
from opmark.report.drawing.panel import Drawn


def draw(one: Drawn) -> Iterator[str]:
    if len(one.spots) == 1:
        yield from points.whiskers(one)
    elif any(spot.ends for spot in one.spots):
        yield _area(one)
    yield from line.draw(one)
    yield from points.dots(one)


def _area(one: Drawn) -> str:
    """There along the lower ends, back along the upper ones; where a point has no interval it is as narrow as that."""
    there = [f"{spot.x:.1f} {spot.ends[0] if spot.ends else spot.y:.1f}" for spot in one.spots]
    back = [f"{spot.x:.1f} {spot.ends[1] if spot.ends else spot.y:.1f}" for spot in reversed(one.spots)]
    return f'<path class="area" d="M{"L".join([*there, *back])}z"/>'
