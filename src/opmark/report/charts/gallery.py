"""All figures that a run may have, in the order of a page."""

from __future__ import annotations

from collections.abc import Callable

from opmark.analysis.rows import RunView
from opmark.report.charts.communication import bus
from opmark.report.charts.corun import corun
from opmark.report.charts.differences import differences
from opmark.report.charts.elements import unique
from opmark.report.charts.factors import factors
from opmark.report.charts.load import load
from opmark.report.charts.overhead import memory, overhead
from opmark.report.charts.prediction import predictions
from opmark.report.charts.roofline import heatmap, roofline
from opmark.report.charts.schedule import schedules
from opmark.report.charts.speedup import frameworks, fused, threads
from opmark.report.charts.sweep import sweep
from opmark.report.charts.tuning import tuning
from opmark.schema.chart import Chart

FIGURES: dict[str, Callable[[RunView], list[Chart]]] = {
    "tuning": tuning,
    "schedules": schedules,
    "factors": factors,
    "corun": corun,
    "roofline": roofline,
    "heatmap": heatmap,
    "frameworks": frameworks,
    "sweep": sweep,
    "load": load,
    "bus": bus,
    "overhead": overhead,
    "threads": threads,
    "fused": fused,
    "memory": memory,
    "differences": differences,
    "predictions": predictions,
}
"""Functions that return the charts of a figure; none if there is nothing to show."""


def gallery(run_view: RunView) -> list[Chart]:
    return unique(chart for figure in FIGURES.values() for chart in figure(run_view))
