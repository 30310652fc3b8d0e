"""Cells of a heatmap, with their value written in them where there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from opmark.report.drawing.heat import Heat
from opmark.report.drawing.panel import Spot
from opmark.report.drawing.text import width
from opmark.report.drawing.words import text

SMALL = 12.0


def draw(
    spots: Sequence[Spot], heat: Heat, size: tuple[float, float], written: Callable[[float], str]
) -> Iterator[str]:
    """Rectangles of one colour in one group; a cell without a value is what lies behind it."""
    wide, high = size
    by_step: dict[int, list[tuple[Spot, float]]] = {}
    for spot in spots:
        if spot.mark.value is not None:
            by_step.setdefault(heat.step(spot.mark.value), []).append((spot, spot.mark.value))
    for step, found in sorted(by_step.items()):
        yield f'<g class="cells h{step}">'
        for spot, _ in found:
            yield (
                f'<rect x="{spot.x - wide / 2:.1f}" y="{spot.y - high / 2:.1f}" width="{wide:.1f}"'
                f' height="{high:.1f}" data-i="{spot.i}"/>'
            )
        yield "</g>"
        if high >= SMALL:
            yield f'<g class="written t{step}" text-anchor="middle">'
            told = ((spot, written(value)) for spot, value in found)
            yield from (text(spot.x, spot.y + 4, said) for spot, said in told if width(said, SMALL) <= wide + 2)
            yield "</g>"
