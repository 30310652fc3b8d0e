"""What of a chart can be drawn. Who makes one leaves out what has no place; nothing here relies on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from opmark.report.drawing.scale import drawable
from opmark.schema.chart import Axis, Chart, Mark, Rule, Series


class Kept(NamedTuple):
    series: Series
    marks: list[tuple[int, Mark]]
    """With the number of its row in the table."""


def kept(chart: Chart) -> list[Kept]:
    found, row = [], 0
    for series in chart.series:
        numbered = enumerate(series.marks, row)
        found.append(Kept(series, [(i, mark) for i, mark in numbered if _has_place(chart, mark)]))
        row += len(series.marks)
    return found


def left_out(chart: Chart) -> int:
    """Marks that are in the table and not in the picture."""
    return sum(not _has_place(chart, mark) for series in chart.series for mark in series.marks)


def interval_axis(chart: Chart) -> Axis:
    """That on which the intervals of marks lie."""
    return chart.x if chart.kind == "bars" else chart.y


def interval(chart: Chart, mark: Mark) -> tuple[float, float] | None:
    """Only whole: half an interval would look like a certain end."""
    if mark.low is None or mark.high is None:
        return None
    axis = interval_axis(chart)
    return (mark.low, mark.high) if drawable(axis, mark.low) and drawable(axis, mark.high) else None


def rules(chart: Chart) -> Iterator[Rule]:
    for rule in chart.rules:
        axis = chart.x if rule.across == "x" else chart.y
        if drawable(axis, rule.at) and (rule.to is None or drawable(axis, rule.to)):
            yield rule


def _has_place(chart: Chart, mark: Mark) -> bool:
    values = chart.values
    told = values is None or mark.value is None or drawable(values, mark.value)
    return told and drawable(chart.x, mark.x) and drawable(chart.y, mark.y)
