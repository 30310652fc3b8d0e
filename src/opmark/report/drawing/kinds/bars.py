"""Names downwards, values to the right: bars, or points with intervals (a forest plot)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from opmark.report.drawing import axes, lettering, sound
from opmark.report.drawing.kinds.picture import Picture
from opmark.report.drawing.kinds.plot import of_rules
from opmark.report.drawing.labels import exact
from opmark.report.drawing.legend import legend
from opmark.report.drawing.looks import looks
from opmark.report.drawing.marks import draw
from opmark.report.drawing.marks.shapes import sample
from opmark.report.drawing.panel import WIDTH, Drawn, Panel, Spot
from opmark.report.drawing.room import Room
from opmark.report.drawing.scale import Linear, Places, Scaled, fitting
from opmark.report.drawing.sound import Kept
from opmark.report.drawing.text import shorten_apart, width
from opmark.report.drawing.words import text
from opmark.schema.chart import Chart, Mark, Rule

_ROW, _GAP = 15.0, 9.0
"""Of a bar, and between the groups of two names."""
_TOP = 14.0
_NAME = 16.0
"""Height of the name of a rule."""
_TOLD = 120
"""With more marks, values are in the table alone."""
_WIDEST = 270.0
_SIGN = 13.0
"""Width of a marker beside a bar."""


class Rows(NamedTuple):
    """Where the marks of each name lie, from the top: only those that it has take room."""

    at: dict[int, float]
    """By the number of a mark."""
    middles: list[float]
    """Of each name."""
    borders: list[float]
    """Above each name but the first."""
    height: float


def picture(chart: Chart) -> Picture:
    found, rules = sound.kept(chart), list(sound.rules(chart))
    marks = [mark for kept in found for _, mark in kept.marks]
    rows = _rows(len(chart.y.names), found)
    barred = any(series.shape == "bars" for series in chart.series)
    ends = [end for mark in marks for end in sound.interval(chart, mark) or ()]
    across = fitting(chart.x, [*(mark.x for mark in marks), *ends, *of_rules(rules, "x")], zero=barred)
    told = {i: _told(chart, mark) for kept in found for i, mark in kept.marks} if len(marks) <= _TOLD else {}
    left = max((width(name, axes.SMALL) for name in _names(chart)), default=0) + 14
    signed = sum(series.shape == "bars" and bool(series.marks) for series in chart.series) > 1
    right = max((width(words, axes.SMALL) for words in told.values()), default=10) + 14 + (_SIGN if signed else 0)
    panel = Panel(left, _TOP + _NAME * len(_upright(rules)), WIDTH - left - right, rows.height)
    drawn = _drawn(chart, found, panel, across, rows)
    beneath = axes.beneath(across, chart.x, panel.width)
    names = legend(list(zip(chart.series, looks(chart.series), strict=True)), WIDTH - 8)
    foot = panel.bottom + beneath.height + 28
    parts = [*_around(chart, panel, across, beneath, rows), *map(draw, drawn),
             *_signs(panel, drawn if signed else []), *_values(panel, drawn, told),
             *names.draw(4, foot)]  # fmt: skip
    return Picture(WIDTH, foot + names.height + (6 if names.height else 0), parts)


def _rows(names: int, found: Sequence[Kept]) -> Rows:
    of_name: list[list[int]] = [[] for _ in range(names)]
    for kept in found:
        for i, mark in kept.marks:
            of_name[round(mark.y)].append(i)
    at, middles, borders, y = {}, [], [], 0.0
    for numbers in of_name:
        borders.append(y)
        y += _GAP / 2
        for k, i in enumerate(numbers):
            at[i] = y + _ROW * (k + 0.5)
        high = _ROW * max(1, len(numbers))
        middles.append(y + high / 2)
        y += high + _GAP / 2
    return Rows(at, middles, borders[1:], y or _ROW)


def _drawn(chart: Chart, found: Sequence[Kept], panel: Panel, across: Scaled, rows: Rows) -> list[Drawn]:
    foot = panel.across(across.place(0.0)) if isinstance(across, Linear) else panel.left
    made = []
    for kept, look in zip(found, looks(chart.series), strict=True):
        spots = []
        for i, mark in kept.marks:
            ends = sound.interval(chart, mark)
            reach = (panel.across(across.place(ends[0])), panel.across(across.place(ends[1]))) if ends else None
            spots.append(Spot(i, panel.across(across.place(mark.x)), panel.top + rows.at[i], reach, mark))
        made.append(Drawn(kept.series, look, spots, 4.5, foot, _ROW - 3, sideways=True))
    return made


def _around(chart: Chart, panel: Panel, across: Scaled, beneath: axes.Beneath, rows: Rows) -> Iterator[str]:
    rules = list(sound.rules(chart))
    up = Places(chart.y.names)
    yield from (lettering.rule(one, panel, across, up) for one in rules if one.to is not None)
    borders = "".join(f"M{panel.left:.1f} {panel.top + y:.1f}H{panel.right:.1f}" for y in rows.borders)
    yield f'<path class="grid minor" d="{borders}"/>' if borders else ""
    yield from axes.grid(panel, beneath.ticks, None)
    yield axes.frame(panel)
    yield from axes.labels_beneath(panel, beneath, chart.x)
    yield '<g class="ticks" text-anchor="end">'
    for name, middle in zip(_names(chart), rows.middles, strict=True):
        yield text(panel.left - 7, panel.top + middle + 4, name)
    yield "</g>"
    yield from (lettering.rule(one, panel, across, up) for one in rules if one.to is None)
    yield from _rule_names(chart, panel, across)


def _names(chart: Chart) -> list[str]:
    return shorten_apart(chart.y.names, _WIDEST, axes.SMALL)


def _rule_names(chart: Chart, panel: Panel, across: Scaled) -> Iterator[str]:
    """Above the picture, a line each: inside there are bars everywhere."""
    for k, one in enumerate(_upright(sound.rules(chart))):
        above = panel._replace(top=panel.top - _NAME * (k + 1), height=_NAME)
        yield from lettering.rule_name(one, above, across, Places(chart.y.names), Room(above))


def _upright(rules: Iterable[Rule]) -> list[Rule]:
    """Those that have a name above the picture."""
    return [one for one in rules if one.across == "x" and one.name]


def _signs(panel: Panel, drawn: Sequence[Drawn]) -> Iterator[str]:
    """A marker beside each bar, as in the legend, for who does not tell colours apart."""
    for one in drawn:
        if one.series.shape == "bars":
            made = "".join(sample(one.look.marker, panel.right + _SIGN / 2 + 3, spot.y, 3.8) for spot in one.spots)
            yield f'<g class="series {one.look.classes}"><g class="dots">{made}</g></g>'


def _values(panel: Panel, drawn: Sequence[Drawn], told: dict[int, str]) -> Iterator[str]:
    """In a column at the right: behind their bars they would meet whiskers and rules."""
    if told:
        yield '<g class="told" text-anchor="end">'
        for one in drawn:
            yield from (text(WIDTH - 4, spot.y + 4, told[spot.i]) for spot in one.spots)
        yield "</g>"


def _told(chart: Chart, mark: Mark) -> str:
    return exact(mark.x, chart.x, 3)
