"""The roofline of a run, or of the items that the filters leave, and how much of the hardware each kind uses."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from opmark.analysis.rows import RunView
from opmark.charts.heatmap import heatmap
from opmark.charts.roofline import roofline
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.filters import Filters, Options, options_of
from opmark.dashboard.reading import Reader
from opmark.dashboard.remembered import OfStore, Remembered
from opmark.schema import Run
from opmark.schema.chart import Chart

_KEPT = 8
"""Answers: ten thousand items take a while to be drawn."""


class Asked(Filters, frozen=True, kw_only=True):
    run: str


class Answer(Struct, frozen=True):
    run: Run
    charts: list[Chart]
    items: int
    """Number of rows that the charts show."""
    options: Options


def view(reader: Reader, asked: Asked) -> Answer:
    run = reader.run(asked.run)
    run_view = reader.run_view(run)
    key = (id(run_view), replace(asked, run=run.id))
    drawn = _DRAWN.of(reader.store).get(key, lambda: _drawn(run_view, asked))
    return Answer(run, drawn.charts, drawn.items, drawn.options)


class _Drawn(NamedTuple):
    run_view: RunView
    """What was drawn: as long as it is held here, nothing else has its id."""
    charts: list[Chart]
    items: int
    options: Options


_DRAWN: OfStore[Remembered[tuple[int, Asked], _Drawn]] = OfStore(lambda: Remembered(_KEPT))


def _drawn(run_view: RunView, asked: Asked) -> _Drawn:
    fitting = tuple(row for row in run_view.rows if asked.fits(row))
    chosen = replace(run_view, rows=fitting)
    return _Drawn(run_view, [*roofline(chosen), *heatmap(chosen)], len(fitting), options_of(run_view.rows))


ENDPOINT = Endpoint(
    "/runs/{run}/roofline", view, Asked, Answer, "roofline.html", "Roofline",
    "What a run's items reach of what the hardware can do, as numbers.",
    of_runs=("run",),
)  # fmt: skip
