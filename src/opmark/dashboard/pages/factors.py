"""What decides the time: the factors of a run that `opmark factors` made."""

from __future__ import annotations

from msgspec import Struct

from opmark.analysis.factors import is_study
from opmark.api.factors import stored_study
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.reader import Reader
from opmark.errors import UserError
from opmark.report.charts.elements import unique
from opmark.report.charts.factors import study_charts
from opmark.schema import Run
from opmark.schema.chart import Chart
from opmark.schema.factors import FactorStudy


class FactorsQuery(Struct, frozen=True):
    run: str


class FactorsPage(Struct, frozen=True):
    run: Run
    study: FactorStudy
    charts: list[Chart]


def view_factors(reader: Reader, query: FactorsQuery) -> FactorsPage:
    run = reader.run(query.run)
    if not is_study(run):
        raise UserError(f"run {run.id} is no study of factors", "`opmark factors OP` makes one")
    found = stored_study(reader.store, run)
    return FactorsPage(run, found, unique(study_charts(found)))


FACTORS_ENDPOINT = Endpoint(
    "/runs/{run}/factors",
    view_factors,
    FactorsQuery,
    FactorsPage,
    "factors.html",
    "Factors",
    "What decides the time: shares of the variance, knees and interactions of a study, as numbers.",
    of_runs=("run",),
)
