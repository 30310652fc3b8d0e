"""All figures of a run, or of the items that the filters leave."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from opmark.analysis.rows import RunView
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.items import FilterOptions, Filters, options_of
from opmark.dashboard.reader import Reader
from opmark.dashboard.run_cache import AnswerCache, OfStore
from opmark.errors import UnknownName
from opmark.report.charts.gallery import FIGURES, gallery
from opmark.report.charts.roofline import heatmap, roofline
from opmark.schema import Run
from opmark.schema.chart import Chart

MANY = 1000
"""Items; with more, all figures at once would be a page of many megabytes."""
ALL = "all"


class FiguresQuery(Filters, frozen=True, kw_only=True):
    run: str
    figure: Annotated[str, Meta(description="One of them, or `all`.")] = ""


class FiguresPage(Struct, frozen=True):
    run: Run
    charts: list[Chart]
    items: int
    """Number of rows that the charts show."""
    options: FilterOptions
    figure: str
    """The figure that is shown, or `all`."""
    figures: list[str]
    """What can be asked for."""


def view_figures(reader: Reader, asked: FiguresQuery) -> FiguresPage:
    run = reader.run(asked.run)
    run_view = reader.run_view(run)
    fitting = tuple(row for row in run_view.rows if asked.fits(row))
    chosen = asked.figure or (ALL if len(fitting) <= MANY else next(iter(FIGURES)))
    if chosen not in (ALL, *FIGURES):
        raise UnknownName("figure", chosen, [*FIGURES, ALL])
    part = replace(run_view, rows=fitting)
    charts = gallery(part) if chosen == ALL else FIGURES[chosen](part)
    return FiguresPage(run, charts, len(fitting), options_of(run_view.rows), chosen, [*FIGURES, ALL])


FIGURES_ENDPOINT = Endpoint(
    "/runs/{run}/figures",
    view_figures,
    FiguresQuery,
    FiguresPage,
    "figures.html",
    "Figures",
    "The figures of a run, as numbers.",
    of_runs=("run",),
)


# The roofline of a run, or of the items that the filters leave, and how much of the hardware each kind uses.

_KEPT = 8
"""Answers: ten thousand items take a while to be drawn."""


class RooflineQuery(Filters, frozen=True, kw_only=True):
    run: str


class RooflinePage(Struct, frozen=True):
    run: Run
    charts: list[Chart]
    items: int
    """Number of rows that the charts show."""
    options: FilterOptions


def view_roofline(reader: Reader, asked: RooflineQuery) -> RooflinePage:
    run = reader.run(asked.run)
    run_view = reader.run_view(run)
    key = (id(run_view), replace(asked, run=run.id))
    drawn = _DRAWN.of(reader.store).get(key, lambda: _drawn(run_view, asked))
    return RooflinePage(run, drawn.charts, drawn.items, drawn.options)


class _RooflineCharts(NamedTuple):
    run_view: RunView
    """What was drawn: as long as it is held here, nothing else has its id."""
    charts: list[Chart]
    items: int
    options: FilterOptions


_DRAWN: OfStore[AnswerCache[tuple[int, RooflineQuery], _RooflineCharts]] = OfStore(lambda: AnswerCache(_KEPT))


def _drawn(run_view: RunView, asked: RooflineQuery) -> _RooflineCharts:
    fitting = tuple(row for row in run_view.rows if asked.fits(row))
    chosen = replace(run_view, rows=fitting)
    return _RooflineCharts(run_view, [*roofline(chosen), *heatmap(chosen)], len(fitting), options_of(run_view.rows))


ROOFLINE_ENDPOINT = Endpoint(
    "/runs/{run}/roofline", view_roofline, RooflineQuery, RooflinePage, "roofline.html", "Roofline",
    "What a run's items reach of what the hardware can do, as numbers.",
    of_runs=("run",),
)  # fmt: skip
