"""The figures and the roofline of a run, or of the rows that match the filters."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from opmark.analysis.rows import RunView
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.items import FilterOptions, Filters, filter_options
from opmark.dashboard.reader import Reader
from opmark.dashboard.run_cache import AnswerCache, PerStore
from opmark.errors import UnknownName
from opmark.report.charts.gallery import FIGURES, gallery
from opmark.report.charts.roofline import heatmap, roofline
from opmark.schema import Run
from opmark.schema.chart import Chart

MANY = 1000
"""Number of rows above which one figure is shown by default: all at once would be a page of many megabytes."""
ALL = "all"
_LOAD = "load"


class FiguresQuery(Filters, frozen=True, kw_only=True):
    run: str
    figure: Annotated[str, Meta(description="Name of a figure, or `all`.")] = ""


class FiguresPage(Struct, frozen=True):
    run: Run
    charts: list[Chart]
    items: int
    """Number of rows that the charts show."""
    options: FilterOptions
    figure: str
    """The figure that is shown, or `all`."""
    figures: list[str]
    """Figures that the query may name."""


def view_figures(reader: Reader, query: FiguresQuery) -> FiguresPage:
    run = reader.run(query.run)
    run_view = reader.run_view(run)
    fitting = tuple(row for row in run_view.rows if query.matches(row))
    chosen = query.figure or (ALL if len(fitting) <= MANY else next(iter(FIGURES)))
    if chosen not in (ALL, *FIGURES):
        raise UnknownName("figure", chosen, [*FIGURES, ALL])
    shown = fitting
    if chosen in (ALL, _LOAD):  # percentiles of requests are computed from their samples, which a view does not hold
        shown = tuple(reader.row(run, row.key)[0] if row.load else row for row in fitting)
    part = replace(run_view, rows=shown)
    charts = gallery(part) if chosen == ALL else FIGURES[chosen](part)
    return FiguresPage(run, charts, len(fitting), filter_options(run_view.rows), chosen, [*FIGURES, ALL])


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


_KEPT = 8
"""Number of rooflines in the cache of a store: the chart of ten thousand rows takes a while to make."""


class RooflineQuery(Filters, frozen=True, kw_only=True):
    run: str


class RooflinePage(Struct, frozen=True):
    run: Run
    charts: list[Chart]
    items: int
    """Number of rows that the charts show."""
    options: FilterOptions


def view_roofline(reader: Reader, query: RooflineQuery) -> RooflinePage:
    run = reader.run(query.run)
    run_view = reader.run_view(run)
    key = (id(run_view), replace(query, run=run.id))

    def make() -> _RooflineCharts:
        fitting = tuple(row for row in run_view.rows if query.matches(row))
        part = replace(run_view, rows=fitting)
        return _RooflineCharts(run_view, [*roofline(part), *heatmap(part)], len(fitting), filter_options(run_view.rows))

    made = _ROOFLINES.get(reader.store).get(key, make)
    return RooflinePage(run, made.charts, made.items, made.options)


class _RooflineCharts(NamedTuple):
    run_view: RunView
    """The run view that the charts show. It is held because the key has its `id()`, which another object could get."""
    charts: list[Chart]
    items: int
    options: FilterOptions


_ROOFLINES: PerStore[AnswerCache[tuple[int, RooflineQuery], _RooflineCharts]] = PerStore(lambda: AnswerCache(_KEPT))


ROOFLINE_ENDPOINT = Endpoint(
    "/runs/{run}/roofline", view_roofline, RooflineQuery, RooflinePage, "roofline.html", "Roofline",
    "The share of the hardware limits that a run's items reach, as numbers.",
    of_runs=("run",),
)  # fmt: skip
