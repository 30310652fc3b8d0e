"""Charts of a tuning: the best over the trials, knobs against time, what each knob matters, and what was gained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from opmark.analysis.factors import is_study
from opmark.analysis.rows import Row, RunView
from opmark.analysis.tuning import (
    TrialFigure,
    best_so_far,
    knob_importance,
    knob_places,
    trials_of,
)
from opmark.plugin.space import format_configuration, format_value
from opmark.report.charts.elements import address
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark
from opmark.schema.tuned import TunedEntry
from opmark.units import count_noun, seconds, significant

_FEWEST = 3
_DRAWN = 6
"""Lines of the fastest, and of the others, that a reader can still tell apart."""


def tuning(run_view: RunView) -> list[Chart]:
    """Return the charts of each case whose configurations were searched; they need whole records."""
    if is_study(run_view.run):  # what its knobs do is told by the charts of factors
        return []
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in run_view.rows:
        if row.records and any(record.task.settings.configuration for record in row.records):
            cases.setdefault((row.case, row.backend), []).append(row)
    charts: list[Chart] = []
    for rows in cases.values():
        trials = trials_of(record for row in rows for record in row.records)
        spaces: dict[tuple[str, frozenset[str]], list[TrialFigure]] = {}
        for trial in trials:
            spaces.setdefault((trial.implementation, frozenset(trial.configuration)), []).append(trial)
        for (label, _), own in spaces.items():
            if sum(trial.seconds is not None for trial in own) >= _FEWEST:
                charts += _charts(f"{rows[0].name} on {rows[0].backend} ({label})", own)
    return charts


def _charts(name: str, trials: Sequence[TrialFigure]) -> Iterator[Chart]:
    timed = [trial for trial in trials if trial.seconds]
    failed = len(trials) - len(timed)
    notes = (f"{count_noun(failed, 'candidate')} failed and has no time",) if failed else ()
    best = best_so_far(trials)
    ends = [*best, (trials[-1].number, best[-1][1])] if best[-1][0] != trials[-1].number else best
    points = (Mark(t.number, t.seconds or 0.0, format_configuration(t.configuration), link=t.key) for t in timed)
    yield Chart(
        address("tuning", name), f"Best so far: {name}",
        "Every candidate in the order of measuring, and the fastest until then.", "plot",
        Axis("trial", "count", "linear"), Axis("time of a call", "s", "log"),
        (
            ChartSeries("candidate", tuple(points)),
            ChartSeries("best so far", tuple(Mark(number, value) for number, value in ends), "steps"),
        ),
        notes=notes,
    )  # fmt: skip
    yield from _coordinates(name, timed)
    importance = knob_importance(trials)
    if importance:
        bars = tuple(Mark(share, y, knob) for y, (knob, share) in enumerate(importance.items()))
        yield Chart(
            address("knobs", name), f"What each knob matters: {name}",
            "Share of the spread of times (as logarithms) that the values of one knob explain by themselves.", "bars",
            Axis("share of the variance", "share", "linear"), Axis("knob", "", "category", tuple(importance)),
            (ChartSeries("explained", bars, "bars"),),
        )  # fmt: skip


def _coordinates(name: str, timed: Sequence[TrialFigure]) -> Iterator[Chart]:
    """Yield the parallel coordinates: each line is a candidate, from its time over the values of its knobs."""
    places = {knob: values for knob, values in knob_places(timed).items() if len(values) > 1}
    if not places:
        return
    ordered = sorted(timed, key=lambda trial: trial.seconds or 0.0)
    step = max(1, (len(ordered) - _DRAWN) // _DRAWN)
    shown = [*ordered[:_DRAWN], *ordered[_DRAWN::step][:_DRAWN]]
    slowest, fastest = ordered[-1].seconds or 1.0, ordered[0].seconds or 1.0

    def marks(trial: TrialFigure) -> tuple[Mark, ...]:
        share = ((trial.seconds or 0.0) - fastest) / (slowest - fastest) if slowest > fastest else 0.0
        found = [Mark(0, share, seconds(trial.seconds or 0.0), link=trial.key)]
        for x, (knob, values) in enumerate(places.items(), 1):
            value = trial.configuration[knob]
            found.append(Mark(x, values.index(value) / (len(values) - 1), f"{knob}={format_value(value)}"))
        return tuple(found)

    yield Chart(
        address("coordinates", name), f"Knobs against time: {name}",
        "Each line is a candidate: its time on the left (fast is low), then where the value of each knob lies among "
        "those that were tried.", "plot",
        Axis("knob", "", "category", ("time", *places)), Axis("place among the values", "share", "linear"),
        tuple(
            ChartSeries(
                f"{place + 1}. {seconds(trial.seconds or 0.0)}", marks(trial), "line",
                "data" if place < _DRAWN else "guide",
            )
            for place, trial in enumerate(shown)
        ),
        notes=(f"the {min(_DRAWN, len(ordered))} fastest, and some of the other {max(0, len(ordered) - _DRAWN)}",),
    )  # fmt: skip


def tuned_bars(entries: Iterable[TunedEntry]) -> list[Chart]:
    """Return the bars of default, tuned and library, measured in turns, of each case."""
    found = [entry for entry in entries if entry.default_seconds]
    if not found:
        return []
    names = tuple(f"{e.op} {format_configuration(e.params)}" for e in found)
    series = []
    for name, pick in (("default", "default_seconds"), ("tuned", "tuned_seconds"), ("library", "library_seconds")):
        bars = tuple(
            Mark(value, y, names[y], note=_note(entry, name))
            for y, entry in enumerate(found)
            if (value := getattr(entry, pick))
        )
        if bars:
            series.append(ChartSeries(name, bars, "bars"))
    chart = Chart(
        address("tuned", *(entry.id for entry in found)), "Default, tuned and library",
        "Medians of processes that were measured in turns. A configuration that is not surely faster is not kept.",
        "bars", Axis("time of a call", "s", "linear"), Axis("case", "", "category", names), tuple(series),
    )  # fmt: skip
    return [chart]


def _note(entry: TunedEntry, name: str) -> str:
    if name == "default" or not entry.tuned_seconds or not entry.default_seconds:
        return ""
    if name == "library":
        return f"the other is {entry.library_verdict}" if entry.library_verdict else ""
    return f"{entry.verdict} ({significant(entry.tuned_seconds / entry.default_seconds, 3)}x the default)"
