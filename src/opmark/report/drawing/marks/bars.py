"""Bars from their foot to the value, in either direction, with intervals as whiskers."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.report.drawing.marks import points
from opmark.report.drawing.panel import Drawn

_THINNEST = 0.8
"""A bar of 0 is still seen, and found."""


def draw(one: Drawn) -> Iterator[str]:
    yield '<g class="boxes">'
    for spot in one.spots:
        left, wide = min(spot.x, one.foot), max(abs(spot.x - one.foot), _THINNEST)
        yield (
            f'<rect x="{left:.1f}" y="{spot.y - one.thick / 2:.1f}" width="{wide:.1f}" height="{one.thick:.1f}"'
            f' data-i="{spot.i}"/>'
        )
    yield "</g>"
    yield from points.whiskers(one)
