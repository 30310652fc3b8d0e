"""Timelines of schedules: when the units of each lane run, as predicted and as measured."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.analysis.rows import RunView
from opmark.report.charts.elements import address
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark
from opmark.schema.schedule import SCHEDULE, PlacedUnit, Schedule, Timeline, read_schedule
from opmark.units import count_noun, seconds

_MOST_UNITS = 60


def schedules(run_view: RunView) -> list[Chart]:
    """Return the timeline of each schedule that was run; it needs whole records."""
    found: dict[str, tuple[str, Schedule]] = {}
    for row in run_view.rows:
        for record in row.records or ():
            text = dict(record.task.settings.configuration).get(SCHEDULE)
            if text:
                found.setdefault(str(text), (f"{row.name} on {row.backend}", read_schedule(str(text))))
    return [timeline_chart(name, one.timeline) for name, one in found.values() if one.timeline.predicted]


def timeline_chart(name: str, timeline: Timeline) -> Chart:
    """Return when units ran: a line for each, from its beginning to its end."""
    order = sorted(timeline.predicted, key=lambda one: (one.start, one.lane))
    rows = {one.unit: place for place, one in enumerate(order[:_MOST_UNITS])}
    names = [f"{one.lane + 1}: {timeline.names[one.unit]} ({one.unit})" for one in order[:_MOST_UNITS]]
    notes = []
    if len(order) > len(rows):
        notes.append(f"the first {count_noun(len(rows), 'unit')} of {len(order)}")
    if not timeline.measured:
        notes.append("not measured unit by unit")
    return Chart(
        address("schedule", name), f"Timeline: {name}",
        "Each line is a unit of operators, from its beginning to its end; the number before its name is its lane. "
        "Lines above each other at the same time run beside each other.",
        "bars", Axis("time since the call began", "s", "linear"), Axis("unit", "", "category", tuple(names)),
        tuple(
            ChartSeries(label, tuple(_marks(placed, rows)), "points")
            for label, placed in (("predicted", timeline.predicted), ("measured", timeline.measured))
            if placed
        ),
        notes=tuple(notes),
    )  # fmt: skip


def _marks(placed: tuple[PlacedUnit, ...], rows: dict[int, int]) -> Iterator[Mark]:
    for one in placed:
        if one.unit in rows:
            label = f"lane {one.lane + 1}, {seconds(one.end - one.start)}"
            yield Mark(one.start, rows[one.unit], label, one.start, one.end)
