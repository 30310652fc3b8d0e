"""The chart of one figure over many runs: its values, its levels, and their changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from opmark.analysis.rows import unit_of
from opmark.plugin.registry import way_of
from opmark.report.charts.elements import address, name_few
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark, ReferenceLine
from opmark.schema.history import History, HistoryPoint, LevelChange, RunAt
from opmark.schema.run import short_revision
from opmark.units import change as change_text
from opmark.units import count_noun

_DAY, _MINUTE = 10, 16
"""Characters of a time up to the day, and up to the minute."""


def history_chart(history: History) -> Chart:
    """Return the chart of a history. Runs have equal distances, whatever their times; marks link to the ids of runs."""
    runs = _runs(history)
    places = {run.id: place for place, run in enumerate(runs)}
    points = [point for point in history.points if math.isfinite(point.value)]
    where = f"{history.backend}{way_of(history.backend, history.implementation)} {history.where}"
    what = " ".join(filter(None, (history.quantity, history.cache)))
    phase = "" if history.phase == "forward" else history.phase
    name = " ".join(filter(None, (history.op, history.params, phase)))
    return Chart(
        id=address(
            "followed", history.case, history.backend, history.implementation, history.where, what, history.chip
        ),
        title=f"{name} on {where}, {what}",
        about=f"Each dot is a run on {history.chip}, oldest first; steps are the levels between changes.",
        kind="plot",
        x=Axis("run", "", "category", tuple(_moments(runs))),
        y=Axis(what, unit_of(history.quantity), "linear"),
        series=tuple(_series(history, points, places)),
        rules=tuple(_rule(change, places) for change in history.changes if math.isfinite(change.ratio)),
        notes=tuple(_notes(history, len(points))),
    )


def _runs(history: History) -> list[RunAt]:
    """Return all runs, also those without a value, so that gaps are visible."""
    found = [*(point.run for point in history.points), *(outage.run for outage in history.outages)]
    return sorted({run.id: run for run in found}.values(), key=lambda run: (run.started, run.id))


def _moments(runs: Sequence[RunAt]) -> Iterator[str]:
    """Yield the day of each run; with the minute if the day has several runs."""
    days = Counter(run.started[:_DAY] for run in runs)
    for run in runs:
        day = run.started[:_DAY]
        yield day if days[day] == 1 else run.started[:_MINUTE].replace("T", " ")


def _series(history: History, points: Sequence[HistoryPoint], places: Mapping[str, int]) -> Iterator[ChartSeries]:
    if not points:
        return
    yield ChartSeries("value", tuple(_dot(point, places) for point in points))
    if levels := _levels(history, places):
        yield ChartSeries("level", levels, "steps", "guide")
    marks = tuple(_change_mark(change, places) for change in history.changes if math.isfinite(change.level_after))
    if marks:
        yield ChartSeries("change of level", marks, "points", "alarm")


def _dot(point: HistoryPoint, places: Mapping[str, int]) -> Mark:
    low, high = (value if value is not None and math.isfinite(value) else None for value in (point.low, point.high))
    label = _run_name(point.run)
    return Mark(places[point.run.id], point.value, label, low, high, link=point.run.id, note=_processes(point))


def _processes(point: HistoryPoint) -> str:
    return count_noun(point.processes, "process", "processes")


def _run_name(run: RunAt) -> str:
    return " ".join(filter(None, (run.id, run.label, short_revision(run.revision))))


def _levels(history: History, places: Mapping[str, int]) -> tuple[Mark, ...]:
    """Return a mark at the beginning of each level, and one at the newest run."""
    first = history.changes[0].level_before if history.changes else history.level
    begins = [
        (places[history.points[0].run.id], first),
        *((places[c.after.id], c.level_after) for c in history.changes),
    ]
    last = places[history.points[-1].run.id]
    ends = [(last, begins[-1][1])] if last > begins[-1][0] else []
    return tuple(Mark(x, level, "level") for x, level in (*begins, *ends) if math.isfinite(level))


def _change_mark(change: LevelChange, places: Mapping[str, int]) -> Mark:
    doubt = "" if change.sure else ", perhaps by chance" if change.settled else ", perhaps a state of the machine"
    label = f"{change_text(change.ratio)} {change.direction} since {change.after.started[:_DAY]}{doubt}"
    facts = [f"{fact} {_value_text(a)} -> {_value_text(b)}" for fact, (a, b) in change.differing.items()]
    note = "; ".join(
        filter(None, (f"between {_run_name(change.before)} and {_run_name(change.after)}", name_few(facts)))
    )
    return Mark(places[change.after.id], change.level_after, label, link=change.after.id, note=note)


def _value_text(value: object) -> str:
    return "none" if value is None else str(value)


def _rule(change: LevelChange, places: Mapping[str, int]) -> ReferenceLine:
    between = (places[change.before.id] + places[change.after.id]) / 2
    return ReferenceLine("x", between, change_text(change.ratio) + ("" if change.sure else " ?"))


def _notes(history: History, points: int) -> Iterator[str]:
    if history.warning:
        yield "the newest runs are out of line: too few for a change yet"
    if points < len(history.points):
        yield f"{count_noun(len(history.points) - points, 'run')} left out: the value is not a number"
    if history.outages:
        outages = [f"{outage.run.started[:_DAY]} {outage.status}" for outage in reversed(history.outages)]
        yield f"no value in {count_noun(len(outages), 'run')}, the newest first: {name_few(outages)}"
