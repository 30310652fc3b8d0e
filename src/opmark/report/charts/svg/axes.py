"""The frame of a plot: grid, ticks with their labels, titles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opmark.report.charts.svg.marks import Panel, SeriesStyle, sample
from opmark.report.charts.svg.scale import Places, Scaled, Ticks, apart, names, roomy, titled
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


def beneath(scale: Scaled, axis: Axis, length: float) -> Beneath:
    if isinstance(scale, Places):
        return _names_beneath(scale, length)
    found = roomy(scale, axis.unit, apart(length, lambda words: width(words, SMALL), _GAP))
    return Beneath(found, False, 20.0)


def _names_beneath(scale: Places, length: float) -> Beneath:
    """Level where they fit, turned where not, and only every so many where even that is too close."""
    cleaned = Places(tuple(shorten(name, _LONGEST, SMALL) for name in scale.names))
    step_length = length / max(1, len(scale.names))
    widest = max((width(name, SMALL) for name in cleaned.names), default=0.0)
    if widest + _GAP / 2 <= step_length:
        return Beneath(Ticks(names(cleaned), []), False, 20.0)
    angle = math.radians(_TURN)
    step = max(1, math.ceil(_LINE / math.sin(angle) / step_length))
    reach = width(cleaned.names[0], SMALL) * math.cos(angle) - step_length / 2
    return Beneath(Ticks(names(cleaned, step), []), True, 14.0 + widest * math.sin(angle), reach)


def beside(scale: Scaled, axis: Axis, length: float) -> tuple[Ticks, float]:
    """Labels to the left of the picture, and the room that they need."""
    if isinstance(scale, Places):
        step = max(1, math.ceil(_LINE * len(scale.names) / max(1.0, length)))
        found = Ticks([t._replace(text=shorten(t.text, _WIDEST, SMALL)) for t in names(scale, step)], [])
    else:
        found = roomy(scale, axis.unit, apart(length, lambda _: SMALL, _GAP))
    return found, max((width(tick.text, SMALL) for tick in found.labelled), default=0.0) + 12


def grid(panel: Panel, across: Ticks | None, up: Ticks | None) -> Iterator[str]:
    """Thin lines first; of a category axis there are none."""
    thin = _lines(panel, across.between if across else [], up.between if up else [])
    thick = _lines(panel, _places(across), _places(up))
    if thin:
        yield f'<path class="grid minor" d="{thin}"/>'
    if thick:
        yield f'<path class="grid" d="{thick}"/>'


def frame(panel: Panel) -> str:
    """The two axes."""
    return f'<path class="axis" d="M{panel.left:.1f} {panel.top:.1f}V{panel.bottom:.1f}H{panel.right:.1f}"/>'


def labels_beneath(panel: Panel, made: Beneath, axis: Axis) -> Iterator[str]:
    anchor = "end" if made.turned else "middle"
    yield f'<g class="ticks" text-anchor="{anchor}">'
    for tick in made.ticks.labelled:
        x = panel.across(tick.place)
        if made.turned:
            yield text(x + 4, panel.bottom + 14, tick.text, turn=-_TURN)
        else:
            yield text(x, panel.bottom + 17, tick.text)
    yield "</g>"
    middle, foot = panel.left + panel.width / 2, panel.bottom + made.height + 18
    yield text(middle, foot, shorten(titled(axis), panel.right, SIZE), anchor="middle", classes="title")


def labels_beside(panel: Panel, found: Ticks, *, downwards: bool) -> Iterator[str]:
    yield '<g class="ticks" text-anchor="end">'
    for tick in found.labelled:
        y = panel.down(tick.place) if downwards else panel.up(tick.place)
        yield text(panel.left - 7, y + 4, tick.text)
    yield "</g>"


def title_above(axis: Axis, panel: Panel) -> str:
    """Level, at the upper left: nobody has to turn their head."""
    return text(4, panel.top - 11, shorten(clean(titled(axis)), panel.right - 8, SIZE), classes="title")


def _places(found: Ticks | None) -> list[float]:
    return [tick.place for tick in found.labelled] if found else []


def _lines(panel: Panel, across: Sequence[float], up: Sequence[float]) -> str:
    upright = [f"M{panel.across(place):.1f} {panel.top:.1f}V{panel.bottom:.1f}" for place in across]
    level = [f"M{panel.left:.1f} {panel.up(place):.1f}H{panel.right:.1f}" for place in up]
    return "".join(upright + level)


# The legend: a marker and a name for each series, in as many lines as they need.

LINE = 20.0
_SIGN, _LEGEND_GAP = 26.0, 18.0
_SMALL = 12.0
_MOST = 48
"""More would be a legend without a picture; the table of numbers names all."""


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

    def draw(self, left: float, top: float) -> Iterator[str]:
        yield '<g class="legend">'
        for entry in self.entries:
            x, y = left + entry.x, top + LINE * (entry.row + 0.5)
            yield f'<g class="series {entry.look.classes}">{"".join(_sign(entry, x, y))}</g>'
            yield text(x + _SIGN, y + 4, entry.words)
        if self.more:
            yield text(left, top + self.height - LINE * 0.5 + 4, f"and {self.more} more, in the table of numbers")
        yield "</g>"


def legend(pairs: Sequence[tuple[ChartSeries, SeriesStyle]], room: float) -> Legend:
    """None of ceilings, which have their names beside them, nor of a single series, whose name is in the title."""
    named = [(series, look) for series, look in pairs if series.role != "ceiling" and series.name and series.marks]
    if len(named) < 2:
        return Legend([], 0, 0.0)
    entries, x, row = [], 0.0, 0
    for series, look in named[:_MOST]:
        words = shorten(series.name, room - _SIGN, _SMALL)
        wide = _SIGN + width(words, _SMALL)
        if x and x + wide > room:
            x, row = 0.0, row + 1
        entries.append(LegendEntry(series, look, words, x, row))
        x += wide + _LEGEND_GAP
    more = max(0, len(named) - _MOST)
    return Legend(entries, more, LINE * (row + 1 + bool(more)))


def _sign(entry: LegendEntry, x: float, y: float) -> Iterator[str]:
    """What stands for it in the picture."""
    shape = entry.series.shape
    if shape == "bars":
        yield f'<g class="boxes"><rect x="{x:.1f}" y="{y - 5:.1f}" width="11" height="10"/></g>'
        yield f'<g class="dots">{sample(entry.look.marker, x + 18, y, 3.8)}</g>'
        return
    if shape in ("line", "band", "steps"):
        yield f'<path class="line" d="M{x:.1f} {y:.1f}h22"/>'
    if shape in ("points", "band"):
        yield f'<g class="dots">{sample(entry.look.marker, x + 11, y, 4.2)}</g>'
