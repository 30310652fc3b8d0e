"""Two axes of numbers: points, lines, bands and steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opmark.report.drawing import axes, ceiling_names, lettering, sound
from opmark.report.drawing.kinds.picture import Picture
from opmark.report.drawing.legend import Legend, legend
from opmark.report.drawing.looks import looks
from opmark.report.drawing.marks import draw
from opmark.report.drawing.panel import WIDTH, Drawn, Panel, Spot
from opmark.report.drawing.room import LINE, Room
from opmark.report.drawing.scale import Places, Scaled, drawable, fitting
from opmark.report.drawing.sound import Kept
from opmark.report.drawing.ticks import Ticks
from opmark.schema.chart import Chart, Rule

HEIGHT = 340.0
_TALL = 420.0
"""With ceilings whose names stand in the right margin: these make the picture wider, and so many of them higher."""
_RIGHT = 22.0
_RADII = ((60, 5.0), (300, 4.4), (1_500, 3.6), (5_000, 2.4))
"""Up to so many points, so large is each."""
_SMALLEST = 1.8
_ORDER = {"guide": 0, "ceiling": 1, "data": 2, "alarm": 3}
"""Later ones lie above."""


class Plotted(NamedTuple):
    """A plot that has its places, without what stands around it."""

    chart: Chart
    panel: Panel
    across: Scaled
    up: Scaled
    drawn: list[Drawn]
    beneath: axes.Beneath
    beside: Ticks
    legend: Legend
    width: float = WIDTH


def picture(chart: Chart, right: float = _RIGHT) -> Picture:
    made = plotted(chart, right)
    return Picture(made.width, height(made), list(parts(made)))


def height(made: Plotted) -> float:
    return made.panel.bottom + made.beneath.height + 28 + made.legend.height + (6 if made.legend.height else 0)


def plotted(chart: Chart, right: float) -> Plotted:
    found = sound.kept(chart)
    rules = list(sound.rules(chart))
    marks = [mark for kept in found for _, mark in kept.marks]
    across = fitting(chart.x, [*(mark.x for mark in marks), *of_rules(rules, "x")])
    counted = [end for one in chart.spread for end in (one.low, one.high) if drawable(chart.y, end)]
    up = fitting(chart.y, [*(mark.y for mark in marks), *_of_intervals(chart, found), *of_rules(rules, "y"), *counted])
    names_wide = ceiling_names.margin([(kept.series, [mark for _, mark in kept.marks]) for kept in found])
    high = _TALL if names_wide else HEIGHT
    beside, left = axes.beside(up, chart.y, high)
    left = max(left, axes.beneath(across, chart.x, WIDTH - left - right).reach)
    panel = Panel(left, axes.TITLE + 4, WIDTH - left - right, high)
    wide = panel.right + max(right, names_wide)
    names = legend(list(zip(chart.series, looks(chart.series), strict=True)), wide - 8)
    beneath = axes.beneath(across, chart.x, panel.width)
    drawn = _drawn(chart, found, panel, across, up)
    return Plotted(chart, panel, across, up, drawn, beneath, beside, names, wide)


def parts(made: Plotted) -> Iterator[str]:
    chart, panel, rules = made.chart, made.panel, list(sound.rules(made.chart))
    yield from (lettering.rule(one, panel, made.across, made.up) for one in rules if one.to is not None)
    yield from axes.grid(panel, made.beneath.ticks, None if isinstance(made.up, Places) else made.beside)
    yield axes.frame(panel)
    yield from axes.labels_beneath(panel, made.beneath, chart.x)
    yield from axes.labels_beside(panel, made.beside, downwards=isinstance(made.up, Places))
    yield axes.title_above(chart.y, panel)
    yield from (lettering.rule(one, panel, made.across, made.up) for one in rules if one.to is None)
    yield from map(draw, sorted(made.drawn, key=lambda one: _ORDER[one.series.role]))
    yield from _names(made)
    yield from made.legend.draw(4, panel.bottom + made.beneath.height + 28)


def _names(made: Plotted) -> Iterator[str]:
    """After the marks, over which they have a rim."""
    room = Room(made.panel)
    for one in made.drawn:
        if one.series.shape in ("points", "band"):
            sides = (-one.radius, one.radius)
            room.take((spot.x + dx, spot.y + dy) for spot in one.spots for dx in sides for dy in sides)
        if one.series.shape != "points":
            room.take(lettering.along_lines(one), LINE)
    yield from ceiling_names.names(made.drawn, made.panel, room)
    for rule in sound.rules(made.chart):
        yield from lettering.rule_name(rule, made.panel, made.across, made.up, room)


def _drawn(chart: Chart, found: Sequence[Kept], panel: Panel, across: Scaled, up: Scaled) -> list[Drawn]:
    radius = radius_of(sum(len(kept.marks) for kept in found if kept.series.shape in ("points", "band")))
    rise = panel.down if isinstance(up, Places) else panel.up
    made = []
    for kept, look in zip(found, looks(chart.series), strict=True):
        spots = []
        for i, mark in kept.marks:
            ends = sound.interval(chart, mark)
            reach = (rise(up.place(ends[0])), rise(up.place(ends[1]))) if ends else None
            spots.append(Spot(i, panel.across(across.place(mark.x)), rise(up.place(mark.y)), reach, mark))
        made.append(Drawn(kept.series, look, spots, radius))
    return made


def radius_of(points: int) -> float:
    return next((radius for most, radius in _RADII if points <= most), _SMALLEST)


def _of_intervals(chart: Chart, found: Sequence[Kept]) -> Iterator[float]:
    for kept in found:
        for _, mark in kept.marks:
            yield from sound.interval(chart, mark) or ()


def of_rules(rules: Sequence[Rule], across: str) -> list[float]:
    """Values on that axis."""
    both = [(rule.at, rule.to) for rule in rules if rule.across == across]
    return [value for pair in both for value in pair if value is not None]
