"""Values in the order taken, and how they are distributed: a histogram along the right edge, on the same axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from opmark.report.drawing.kinds import plot
from opmark.report.drawing.kinds.picture import Picture
from opmark.report.drawing.panel import WIDTH, Panel
from opmark.report.drawing.words import text
from opmark.schema.chart import Chart

_WIDE = 96.0
_GAP = 10.0
_FEWEST, _MOST = 8, 48


def picture(chart: Chart) -> Picture:
    made = plot.plotted(chart, _WIDE + _GAP + 16)
    panel = made.panel
    side = Panel(panel.right + _GAP, panel.top, _WIDE, panel.height)
    heights = [spot.y for one in made.drawn if one.series.role in ("data", "alarm") for spot in one.spots]
    return Picture(WIDTH, plot.height(made), [*_histogram(side, heights), *plot.parts(made)])


def _histogram(side: Panel, heights: Sequence[float]) -> Iterator[str]:
    """Of the places in the picture, so that it is one of a logarithm where the axis is logarithmic."""
    if not heights:
        return
    bins = min(_MOST, max(_FEWEST, math.ceil(2 * len(heights) ** 0.5)))
    counts = [0] * bins
    for y in heights:
        counts[min(bins - 1, int((y - side.top) / side.height * bins))] += 1
    step, most = side.height / bins, max(counts)
    boxes = [
        f"M{side.left:.1f} {side.top + k * step + 0.5:.1f}h{side.width * n / most:.1f}v{step - 1:.1f}H{side.left:.1f}z"
        for k, n in enumerate(counts)
        if n
    ]
    yield f'<path class="histogram" d="{"".join(boxes)}"/>'
    yield f'<path class="axis" d="M{side.left:.1f} {side.top:.1f}V{side.bottom:.1f}"/>'
    yield text(side.left, side.bottom + 17, "0", classes="tick")
    yield text(side.right, side.bottom + 17, str(most), classes="tick", anchor="end")
    yield text(side.left + side.width / 2, side.bottom + 38, "how many", classes="title", anchor="middle")
