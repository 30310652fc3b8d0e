"""A line with points, and the intervals of these as an area."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from opmark.report.drawing.marks import line, points
from opmark.report.drawing.panel import Drawn, Spot


def draw(one: Drawn) -> Iterator[str]:
    """Where a point has no interval the area is interrupted: as narrow as the line, it would look certain."""
    stretches = [list(spots) for known, spots in groupby(one.spots, lambda spot: spot.ends is not None) if known]
    if areas := [_area(spots) for spots in stretches if len(spots) > 1]:
        yield f'<path class="area" d="{"".join(areas)}"/>'
    yield from points.whiskers(one._replace(spots=[spots[0] for spots in stretches if len(spots) == 1]))
    yield from line.draw(one)
    yield from points.dots(one)


def _area(spots: Sequence[Spot]) -> str:
    """There along the lower ends, back along the upper ones."""
    ends = [(spot.x, *spot.ends) for spot in spots if spot.ends]
    there = [f"{x:.1f} {low:.1f}" for x, low, _ in ends]
    back = [f"{x:.1f} {high:.1f}" for x, _, high in reversed(ends)]
    return f"M{'L'.join([*there, *back])}z"
