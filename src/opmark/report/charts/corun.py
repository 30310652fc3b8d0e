"""Charts of operators that ran at the same time: how much each slows down each other one, and whether it pays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opmark.analysis.corun import corun_results, slowdown_matrix
from opmark.analysis.rows import RunView
from opmark.report.charts.elements import address, end, positive
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark, ReferenceLine
from opmark.schema.corun import CorunResult

MOST = 20
"""Operators of a matrix, and companies of the chart of makespans."""


def corun(run_view: RunView) -> list[Chart]:
    """Return the figures of a co-run; they need whole records, because both sides of a slowdown are paired by
    process."""
    records = [record for row in run_view.rows if row.company for record in row.records]
    results = corun_results(records, run_view.machines)
    return [*_matrix(results), *_makespans(results)]


def _matrix(results: Sequence[CorunResult]) -> Iterator[Chart]:
    names, cells = slowdown_matrix(results)
    shown = names[:MOST]
    marks = tuple(
        Mark(
            shown.index(other), shown.index(name), f"{name} beside {other}", end(one.low), end(one.high), one.ratio,
            note=f"{one.verdict}, {one.processes} processes", unsure=one.low is None,
        )
        for (name, other), one in cells.items() if name in shown and other in shown
    )  # fmt: skip
    if not marks:
        return
    notes = (f"left out: {len(names) - MOST} more operators",) if len(names) > MOST else ()
    yield Chart(
        address("corun", "slowdown"), "Slowdown beside another operator",
        "How many times as long the operator of a line takes beside the one of a column as alone.", "heatmap",
        Axis("beside", "", "category", tuple(shown)), Axis("operator", "", "category", tuple(shown)),
        (ChartSeries("slowdown", marks, "cells"),), values=Axis("time beside it over time alone", "ratio", "linear"),
        notes=notes,
    )  # fmt: skip


def _makespans(results: Sequence[CorunResult]) -> Iterator[Chart]:
    known = [(one, one.together) for one in results if one.together and positive(one.together.ratio)][:MOST]
    if not known:
        return
    names = tuple(" and ".join(member.name for member in one.members) for one, _ in known)
    marks = tuple(
        Mark(
            found.ratio, place, names[place], end(found.low), end(found.high), note=found.verdict,
            unsure=found.low is None,
        )
        for place, (_, found) in enumerate(known)
    )  # fmt: skip
    yield Chart(
        address("corun", "makespan"), "Together against one after the other",
        "Time of all together over the time of one after the other: to the left of 1, running together pays.", "bars",
        Axis("makespan over sequence", "ratio", "log"), Axis("", "", "category", names),
        (ChartSeries("makespan", marks, "bars"),), rules=(ReferenceLine("x", 1.0, "as long as in sequence"),),
    )  # fmt: skip
