"""The numbers of a chart as a table of text: what the picture shows, for who reads, copies, or does not see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from opmark.report.charts.svg import kinds
from opmark.report.charts.svg.kinds import Picture, identifier
from opmark.report.charts.svg.scale import exact, interval_axis
from opmark.report.charts.svg.text import clean
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark

_DIGITS = 4
_FINE = 5
"""Digits of samples, which differ little from each other."""
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
    cell: Callable[[ChartSeries, Mark], str]
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


def _told(axis: Axis, of: Callable[[Mark], float | None], digits: int) -> Callable[[ChartSeries, Mark], str]:
    def cell(series: ChartSeries, mark: Mark) -> str:
        value = of(mark)
        return _NOTHING if value is None else clean(exact(value, axis, digits))

    return cell


# The picture of a chart. It has CSS classes and no colours, which come from the style sheet.

_KINDS: dict[str, Callable[[Chart], Picture]] = {
    "plot": kinds.draw_plot,
    "bars": kinds.draw_bar_chart,
    "heatmap": kinds.draw_heatmap,
    "samples": kinds.draw_samples,
}
_MANY = 300
"""Marks, from which on they let each other shine through."""
_WIDE, _WIDEST = 900.0, 1300.0


def svg(chart: Chart) -> str:
    """Named by two elements of the page around it: `ID-title` and `ID-about`."""
    picture = _KINDS[chart.kind](chart)
    classes = ["many"] if sum(len(series.marks) for series in chart.series) > _MANY else []
    classes += ["wide"] if _WIDE < picture.width <= _WIDEST else ["widest"] if picture.width > _WIDEST else []
    name = identifier(chart)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {picture.width:.0f} {picture.height:.0f}" role="img"'
        f' aria-labelledby="{name}-title {name}-about"{_class(classes)}>{"".join(picture.parts)}</svg>'
    )


def _class(names: list[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""
