"""Charts of what decides the time: shares of the variance, the curve of each factor with its knees, interactions."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.analysis.factors import is_study, study, values_of
from opmark.analysis.rows import RunView
from opmark.errors import UserError
from opmark.report.charts.elements import address
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark, ReferenceLine, Scale, Unit
from opmark.schema.factors import OUTCOMES, FactorEffect, FactorLevel, FactorOutcome, FactorStudy, Outcome

_UNITS: dict[Outcome, Unit] = {"time": "s", "energy": "J", "energy_delay": ""}


def factors(run_view: RunView) -> list[Chart]:
    """Return the charts of a run of `opmark factors`; they need whole records."""
    records = [record for row in run_view.rows for record in row.records]
    if not is_study(run_view.run) or not records:
        return []
    try:
        found = study(values_of(records), run_view.run.id)
    except UserError:  # an interrupted run has too little to say yet
        return []
    return study_charts(found)


def study_charts(found: FactorStudy) -> list[Chart]:
    name = f"{found.op} on {found.backend}"
    return [chart for outcome in found.outcomes for chart in _charts(name, found, outcome)]


def _charts(name: str, found: FactorStudy, outcome: FactorOutcome) -> Iterator[Chart]:
    what = OUTCOMES[outcome.outcome]
    known = [effect for effect in outcome.effects if effect.share is not None]
    if known:
        own = tuple(
            Mark(
                effect.share or 0.0, y, effect.name, effect.low, effect.high,
                note="" if effect.matters else "no effect that can be told from noise",
            )
            for y, effect in enumerate(known)
        )  # fmt: skip
        total = tuple(Mark(effect.total or 0.0, y, effect.name) for y, effect in enumerate(known))
        yield Chart(
            address("factors", name, outcome.outcome), f"What decides the {what}: {name}",
            "Share of the variance (of logarithms, over the ranges of all factors) that a factor explains by itself, "
            "with its interval over processes, and together with others.", "bars",
            Axis("share of the variance", "share", "linear", most=1.0),
            Axis("factor", "", "category", tuple(effect.name for effect in known)),
            (ChartSeries("by itself", own, "bars"), ChartSeries("with others", total, "bars")),
            notes=(f"varied around {found.base}",),
        )  # fmt: skip
    for effect in outcome.effects:
        yield from _curve(name, outcome.outcome, effect)
    yield from _interactions(name, outcome)


def _curve(name: str, outcome: Outcome, effect: FactorEffect) -> Iterator[Chart]:
    levels = [level for level in effect.levels if level.median]
    if len(levels) < 2:
        return
    ordered = all(level.value is not None for level in levels)
    notes = effect.sentences
    title, what = f"{effect.name}: {name}", OUTCOMES[outcome]
    about = "The other factors are at the base; intervals are over processes."
    own_id = address("factor", name, outcome, effect.name)
    if not ordered:
        bars = tuple(
            Mark(level.median or 0.0, y, level.name, level.low, level.high, link=level.task)
            for y, level in enumerate(levels)
        )
        yield Chart(
            own_id, title, f"{what.capitalize()} at each level. {about}", "bars",
            Axis(what, _UNITS[outcome], "linear"),
            Axis(effect.name, "", "category", tuple(level.name for level in levels)),
            (ChartSeries(what, bars, "bars"),), notes=notes,
        )  # fmt: skip
        return
    positive = all((level.value or 0) > 0 for level in levels)
    scale: Scale = "log2" if positive else "linear"
    points = tuple(_mark(level) for level in levels)
    rules = tuple(
        line for knee in effect.knees
        for line in (ReferenceLine("x", knee.at, "knee"), ReferenceLine("x", knee.low, "95 %", knee.high))
    )  # fmt: skip
    yield Chart(
        own_id, title, f"{what.capitalize()} over the factor; lines mark where it bends. {about}", "plot",
        Axis(effect.name, "count", scale), Axis(what, _UNITS[outcome], "log"), (ChartSeries(what, points, "band"),),
        rules, notes=notes,
    )  # fmt: skip


def _mark(level: FactorLevel) -> Mark:
    low, high = (level.low, level.high) if level.low and level.high else (None, None)
    return Mark(level.value or 0.0, level.median or 0.0, level.name, low, high, link=level.task, unsure=low is None)


def _interactions(name: str, outcome: FactorOutcome) -> Iterator[Chart]:
    pairs = outcome.interactions
    if not pairs:
        return
    names = tuple(dict.fromkeys(one for pair in pairs for one in (pair.first, pair.second)))
    cells = [
        Mark(names.index(a), names.index(b), f"{a} and {b}", value=pair.share, note=pair.sentence)
        for pair in pairs for a, b in ((pair.first, pair.second), (pair.second, pair.first))
    ]  # fmt: skip
    yield Chart(
        address("interactions", name, outcome.outcome), f"Which factors act together: {name}",
        "Share of the variance that a pair explains beyond what both explain by themselves.", "heatmap",
        Axis("factor", "", "category", names), Axis("with", "", "category", names),
        (ChartSeries("interaction", tuple(cells), "cells"),), values=Axis("share of the variance", "share", "linear"),
    )  # fmt: skip
