"""All figures that a run may have, in the order of a page."""

from __future__ import annotations

from collections.abc import Callable

from opmark.analysis.rows import RunView
from opmark.charts.bus import bus
from opmark.charts.common import unique
from opmark.charts.frameworks import frameworks
from opmark.charts.fused import fused
from opmark.charts.heatmap import heatmap
from opmark.charts.memory import memory
from opmark.charts.overhead import overhead
from opmark.charts.roofline import roofline
from opmark.charts.sweep import sweep
from opmark.charts.threads import threads
from opmark.schema.chart import Chart

FIGURES: dict[str, Callable[[RunView], list[Chart]]] = {
    "roofline": roofline,
    "heatmap": heatmap,
    "frameworks": frameworks,
    "sweep": sweep,
    "bus": bus,
    "overhead": overhead,
    "threads": threads,
    "fused": fused,
    "memory": memory,
}
"""Each gives nothing where there is nothing to show."""


def gallery(run_view: RunView) -> list[Chart]:
    return unique(chart for figure in FIGURES.values() for chart in figure(run_view))
