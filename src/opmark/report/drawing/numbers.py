"""The numbers of a chart as a table of text: what the picture shows, for who reads, copies, or does not see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from opmark.report.drawing.labels import exact
from opmark.report.drawing.sound import interval_axis
from opmark.report.drawing.text import clean
from opmark.schema.chart import Axis, Chart, Mark, Series

_DIGITS = 4
_FINE = 5
"""Of samples, which differ little from each other."""
_NOTHING = "no number"
_UNKNOWN = "unknown"


class NumberRow(NamedTuple):
    cells: tuple[str, ...]
    link: str
    """Key of the item that it is of, or empty."""


class Numbers(NamedTuple):
    head: tuple[str, ...]
    rows: list[NumberRow]
    """One a mark: the number of a row is that of its mark in the picture."""
    words: tuple[bool, ...]
    """Which columns are words, not numbers."""


class _Column(NamedTuple):
    head: str
    cell: Callable[[Series, Mark], str]
    words: bool = False


def numbers(chart: Chart) -> Numbers:
    """Only columns that say something."""
    columns = list(_columns(chart))
    rows = [
        NumberRow(tuple([column.cell(series, mark) for column in columns]), mark.link)
        for series in chart.series
        for mark in series.marks
    ]
    return Numbers(tuple(column.head for column in columns), rows, tuple(column.words for column in columns))


def _columns(chart: Chart) -> Iterator[_Column]:
    marks = [mark for series in chart.series for mark in series.marks]
    digits = _FINE if chart.kind == "samples" else _DIGITS
    if any(mark.label for mark in marks):
        yield _Column("of", lambda series, mark: clean(mark.label or series.name), True)
    if len(chart.series) > 1:
        yield _Column("series", lambda series, mark: clean(series.name), True)
    for axis, of in _axes(chart):
        yield _Column(clean(axis.title) or "value", _told(axis, of, digits), axis.scale == "category")
    ends = interval_axis(chart)
    if any(mark.low is not None or mark.unsure for mark in marks):
        yield _Column("from", lambda series, mark: _UNKNOWN if mark.unsure else exact(mark.low, ends, digits))
    if any(mark.high is not None or mark.unsure for mark in marks):
        yield _Column("to", lambda series, mark: _UNKNOWN if mark.unsure else exact(mark.high, ends, digits))
    if any(mark.note for mark in marks):
        yield _Column("note", lambda series, mark: clean(mark.note), True)


def _axes(chart: Chart) -> Iterator[tuple[Axis, Callable[[Mark], float | None]]]:
    """Where names go downwards, they are read first."""
    across, up = (chart.x, lambda mark: mark.x), (chart.y, lambda mark: mark.y)
    yield from (up, across) if chart.kind in ("bars", "heatmap") else (across, up)
    if chart.values is not None:
        yield chart.values, lambda mark: mark.value


def _told(axis: Axis, of: Callable[[Mark], float | None], digits: int) -> Callable[[Series, Mark], str]:
    def cell(series: Series, mark: Mark) -> str:
        value = of(mark)
        return _NOTHING if value is None else clean(exact(value, axis, digits))

    return cell
