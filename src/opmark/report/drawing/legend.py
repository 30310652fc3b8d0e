"""The legend: a marker and a name a series, in as many lines as they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opmark.report.drawing.looks import Look
from opmark.report.drawing.marks.shapes import sample
from opmark.report.drawing.text import shorten, width
from opmark.report.drawing.words import text
from opmark.schema.chart import Series

LINE = 20.0
_SIGN, _GAP = 26.0, 18.0
_SMALL = 12.0
_MOST = 48
"""More would be a legend without a picture; the table of numbers names all."""


class Entry(NamedTuple):
    series: Series
    look: Look
    words: str
    x: float
    row: int


class Legend(NamedTuple):
    entries: list[Entry]
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


def legend(pairs: Sequence[tuple[Series, Look]], room: float) -> Legend:
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
        entries.append(Entry(series, look, words, x, row))
        x += wide + _GAP
    more = max(0, len(named) - _MOST)
    return Legend(entries, more, LINE * (row + 1 + bool(more)))


def _sign(entry: Entry, x: float, y: float) -> Iterator[str]:
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
