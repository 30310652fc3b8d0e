"""Levels, each until the next."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.report.drawing.panel import Drawn


def draw(one: Drawn) -> Iterator[str]:
    if len(one.spots) > 1:
        first, *others = one.spots
        path = "".join(f"H{spot.x:.1f}V{spot.y:.1f}" for spot in others)
        yield f'<path class="line" d="M{first.x:.1f} {first.y:.1f}{path}"/>'
