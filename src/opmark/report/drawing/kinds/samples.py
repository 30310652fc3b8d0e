"""Values in the order taken, and how they are distributed: a histogram along the right edge, on the same axis."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.report.drawing.kinds import plot
from opmark.report.drawing.kinds.picture import Picture
from opmark.report.drawing.panel import WIDTH, Panel
from opmark.report.drawing.scale import drawable
from opmark.report.drawing.words import text
from opmark.schema.chart import Chart

_WIDE = 96.0
_GAP = 10.0


def picture(chart: Chart) -> Picture:
    made = plot.plotted(chart, _WIDE + _GAP + 16)
    panel = made.panel
    side = Panel(panel.right + _GAP, panel.top, _WIDE, panel.height)
    return Picture(WIDTH, plot.height(made), [*_histogram(side, made), *plot.parts(made)])


def _histogram(side: Panel, made: plot.Plotted) -> Iterator[str]:
    """As the chart has counted: not every value has a mark."""
    axis = made.chart.y
    counts = [one for one in made.chart.spread if one.number and drawable(axis, one.low) and drawable(axis, one.high)]
    if not counts:
        return
    most = max(one.number for one in counts)
    boxes = []
    for one in counts:
        top, foot = side.up(made.up.place(one.high)), side.up(made.up.place(one.low))
        wide, high = side.width * one.number / most, max(foot - top - 1, 1.0)
        boxes.append(f"M{side.left:.1f} {top + 0.5:.1f}h{wide:.1f}v{high:.1f}H{side.left:.1f}z")
    yield f'<path class="histogram" d="{"".join(boxes)}"/>'
    yield f'<path class="axis" d="M{side.left:.1f} {side.top:.1f}V{side.bottom:.1f}"/>'
    yield text(side.left, side.bottom + 17, "0", classes="tick")
    yield text(side.right, side.bottom + 17, str(most), classes="tick", anchor="end")
    yield text(side.left + side.width / 2, side.bottom + 38, "how many", classes="title", anchor="middle")
