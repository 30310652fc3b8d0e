"""All figures of a run, or of the items that the filters leave."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from opmark.charts.gallery import FIGURES, gallery
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.filters import Filters, Options, options_of
from opmark.dashboard.reading import Reader
from opmark.errors import UnknownName
from opmark.schema import Run
from opmark.schema.chart import Chart

MANY = 1000
"""Items; with more, all figures at once would be a page of many megabytes."""
ALL = "all"


class Asked(Filters, frozen=True, kw_only=True):
    run: str
    figure: Annotated[str, Meta(description="One of them, or `all`.")] = ""


class Answer(Struct, frozen=True):
    run: Run
    charts: list[Chart]
    items: int
    """Number of rows that the charts show."""
    options: Options
    figure: str
    """The figure that is shown, or `all`."""
    figures: list[str]
    """What can be asked for."""


def view(reader: Reader, asked: Asked) -> Answer:
    run = reader.run(asked.run)
    run_view = reader.run_view(run)
    fitting = tuple(row for row in run_view.rows if asked.fits(row))
    chosen = asked.figure or (ALL if len(fitting) <= MANY else next(iter(FIGURES)))
    if chosen not in (ALL, *FIGURES):
        raise UnknownName("figure", chosen, [*FIGURES, ALL])
    part = replace(run_view, rows=fitting)
    charts = gallery(part) if chosen == ALL else FIGURES[chosen](part)
    return Answer(run, charts, len(fitting), options_of(run_view.rows), chosen, [*FIGURES, ALL])


ENDPOINT = Endpoint(
    "/runs/{run}/figures",
    view,
    Asked,
    Answer,
    "figures.html",
    "Figures",
    "The figures of a run, as numbers.",
    of_runs=("run",),
)
