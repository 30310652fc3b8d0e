"""The frame of a plot: grid, ticks with their labels, titles, and the legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from opmark.report.charts.svg.marks import SeriesStyle, draw_marker
from opmark.report.charts.svg.scale import Panel, Places, Scaled, Ticks, fit_ticks, names, title_with_unit
from opmark.report.charts.svg.text import SIZE, clean, shorten, text, width
from opmark.schema.chart import Axis, ChartSeries

SMALL = 12.0
TITLE = 24.0
"""Height of the line in which the title of the upright axis stands."""
_GAP = 12.0
_LINE = 15.0
_TURN = 35.0
_LONGEST = 150.0
"""Width limit of a name below the picture."""
_WIDEST = 250.0
"""Width limit of a name left of the picture."""


class Beneath(NamedTuple):
    """Labels under the picture: `turned` ones need more height."""

    ticks: Ticks
    turned: bool
    height: float
    reach: float = 0.0
    """How far the first of them goes to the left of its tick."""


def place_beneath(scale: Scaled, axis: Axis, length: float) -> Beneath:
    """Place the labels under the picture. Names are level if they fit, else turned; if even turned ones are too close,
    only every so many are written."""
    if not isinstance(scale, Places):
        return Beneath(fit_ticks(scale, axis.unit, length, lambda words: width(words, SMALL), _GAP), False, 20.0)
    cleaned = Places(tuple(shorten(name, _LONGEST, SMALL) for name in scale.names))
    step_length = length / max(1, len(scale.names))
    widest = max((width(name, SMALL) for name in cleaned.names), default=0.0)
    if widest + _GAP / 2 <= step_length:
        return Beneath(Ticks(names(cleaned), []), False, 20.0)
    angle = math.radians(_TURN)
    step = max(1, math.ceil(_LINE / math.sin(angle) / step_length))
    reach = width(cleaned.names[0], SMALL) * math.cos(angle) - step_length / 2
    return Beneath(Ticks(names(cleaned, step), []), True, 14.0 + widest * math.sin(angle), reach)


def place_beside(scale: Scaled, axis: Axis, length: float) -> tuple[Ticks, float]:
    """Return the labels to the left of the picture, and the room that they need."""
    if isinstance(scale, Places):
        step = max(1, math.ceil(_LINE * len(scale.names) / max(1.0, length)))
        found = Ticks([t._replace(text=shorten(t.text, _WIDEST, SMALL)) for t in names(scale, step)], [])
    else:
        found = fit_ticks(scale, axis.unit, length, lambda _: SMALL, _GAP)
    return found, max((width(tick.text, SMALL) for tick in found.labelled), default=0.0) + 12


def draw_frame(panel: Panel, across: Ticks, up: Ticks | None) -> str:
    """Return the grid, thin lines first, and the two axes. A category axis has no grid: its ticks are None."""
    nothing = Ticks([], [])
    thin = across.between, (up or nothing).between
    thick = [tick.place for tick in across.labelled], [tick.place for tick in (up or nothing).labelled]
    top, foot, left, right = panel.top, panel.bottom, panel.left, panel.right
    found = ""
    for classes, (upright, level) in (("grid minor", thin), ("grid", thick)):
        path = "".join(f"M{panel.across(place):.1f} {top:.1f}V{foot:.1f}" for place in upright)
        path += "".join(f"M{left:.1f} {panel.up(place):.1f}H{right:.1f}" for place in level)
        found += f'<path class="{classes}" d="{path}"/>' if path else ""
    return f'{found}<path class="axis" d="M{left:.1f} {top:.1f}V{foot:.1f}H{right:.1f}"/>'


def draw_beneath(panel: Panel, made: Beneath, axis: Axis) -> str:
    """Return the labels and the title of the level axis."""
    down = panel.bottom
    places = [(panel.across(tick.place), tick.text) for tick in made.ticks.labelled]
    if made.turned:
        labels = "".join([text(x + 4, down + 14, words, turn=-_TURN) for x, words in places])
    else:
        labels = "".join([text(x, down + 17, words) for x, words in places])
    title = shorten(title_with_unit(axis), panel.right, SIZE)
    title = text(panel.left + panel.width / 2, down + made.height + 18, title, anchor="middle", classes="title")
    return f'<g class="ticks" text-anchor="{"end" if made.turned else "middle"}">{labels}</g>{title}'


def draw_beside(panel: Panel, found: Ticks, axis: Axis) -> str:
    """Return the labels of the upright axis, and its title: level, at the upper left, easy to read."""
    rise = panel.down if axis.scale == "category" else panel.up
    places = [(rise(tick.place), tick.text) for tick in found.labelled]
    labels = "".join([text(panel.left - 7, y + 4, words) for y, words in places])
    title = shorten(clean(title_with_unit(axis)), panel.right - 8, SIZE)
    return f'<g class="ticks" text-anchor="end">{labels}</g>{text(4, panel.top - 11, title, classes="title")}'


# The legend: a marker and a name for each series, in as many lines as they need.

LINE = 20.0
_SIGN, _LEGEND_GAP = 26.0, 18.0
_MOST = 48
"""Number of names; more would be a legend without a picture, and the table of numbers has all of them."""


class LegendEntry(NamedTuple):
    series: ChartSeries
    look: SeriesStyle
    words: str
    x: float
    row: int


class Legend(NamedTuple):
    entries: list[LegendEntry]
    more: int
    height: float

    def draw(self, left: float, top: float) -> str:
        found = ""
        for series, look, words, across, row in self.entries:
            x, y = left + across, top + LINE * (row + 0.5)
            sign = ""
            if series.shape == "bars":
                sign = f'<g class="boxes"><rect x="{x:.1f}" y="{y - 5:.1f}" width="11" height="10"/></g>'
                sign += f'<g class="dots">{draw_marker(look.marker, 3.8, x + 18, y)}</g>'
            if series.shape in ("line", "band", "steps"):
                sign = f'<path class="line" d="M{x:.1f} {y:.1f}h22"/>'
            if series.shape in ("points", "band"):
                sign += f'<g class="dots">{draw_marker(look.marker, 4.2, x + 11, y)}</g>'
            found += f'<g class="series {look.classes}">{sign}</g>{text(x + _SIGN, y + 4, words)}'
        if self.more:
            found += text(left, top + self.height - LINE * 0.5 + 4, f"and {self.more} more, in the table of numbers")
        return f'<g class="legend">{found}</g>'


def place_legend(pairs: Sequence[tuple[ChartSeries, SeriesStyle]], room: float) -> Legend:
    """Place the names of series. Ceilings have their names beside them, and the name of a single series is in the
    title."""
    named = [(series, look) for series, look in pairs if series.role != "ceiling" and series.name and series.marks]
    if len(named) < 2:
        return Legend([], 0, 0.0)
    entries, x, row = [], 0.0, 0
    for series, look in named[:_MOST]:
        words = shorten(series.name, room - _SIGN, SMALL)
        wide = _SIGN + width(words, SMALL)
        if x and x + wide > room:
            x, row = 0.0, row + 1
        entries.append(LegendEntry(series, look, words, x, row))
        x += wide + _LEGEND_GAP
    more = max(0, len(named) - _MOST)
    return Legend(entries, more, LINE * (row + 1 + bool(more)))
