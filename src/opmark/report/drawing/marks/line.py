"""A line without points."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.report.drawing.panel import Drawn


def draw(one: Drawn) -> Iterator[str]:
    if len(one.spots) > 1:
        path = "L".join(f"{spot.x:.1f} {spot.y:.1f}" for spot in one.spots)
        yield f'<path class="line" d="M{path}"/>'
