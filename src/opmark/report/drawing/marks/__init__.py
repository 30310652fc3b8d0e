"""Marks, one file a shape: what is drawn of a series that has its places."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opmark.report.drawing.marks import band, bars, line, points, steps
from opmark.report.drawing.panel import Drawn
from opmark.schema.chart import Shape

DRAW: dict[Shape, Callable[[Drawn], Iterator[str]]] = {
    "points": points.draw,
    "line": line.draw,
    "band": band.draw,
    "steps": steps.draw,
    "bars": bars.draw,
}
"""Cells are drawn with their heatmap: alone they have no size."""


def draw(one: Drawn) -> str:
    """A group, so that what all its marks share is said once."""
    role = f" {one.series.role}" if one.series.role == "data" else ""
    return f'<g class="series {one.look.classes}{role}">{"".join(DRAW[one.series.shape](one))}</g>'
