"""The pages of one run and of one row of it, and the progress of a run.

The page of a run has its failures first, then a table that is sorted and filtered by the parameters of its address.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from opmark.analysis.rows import Row
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.items import Failure, FilterOptions, Filters, ItemRequest, RunProgress, Sort, estimate_progress
from opmark.dashboard.navigation import Page, PageNumber
from opmark.dashboard.reader import Reader
from opmark.report.charts.samples import samples
from opmark.schema import Run
from opmark.schema.chart import Chart
from opmark.schema.measurement import Caution
from opmark.schema.run import RunSummary

ROWS = 200
OTHERS = 200
"""Number of runs that are offered to compare with."""


class RunQuery(Filters, frozen=True, kw_only=True):
    run: str
    sort: Sort = ""
    page: PageNumber = 1


class Other(Struct, frozen=True):
    """A run to compare with."""

    id: str
    label: str
    started: str


class RunPage(Struct, frozen=True):
    run: Run
    summary: RunSummary
    progress: RunProgress
    failures: list[Failure]
    items: list[Row]
    """One page of the rows that match the filters."""
    page: Page
    options: FilterOptions
    environments: dict[str, dict[str, Any]]
    others: list[Other]


def view_run(reader: Reader, query: RunQuery) -> RunPage:
    run = reader.run(query.run)
    items = reader.items(run, ItemRequest(query, query.sort, query.page, ROWS))
    summary = reader.summaries([run])[0]
    progress = reader.progress(run) if summary.missing else estimate_progress(run, summary.statuses, items.newest)
    others = [Other(one.id, one.label, one.started) for one in reader.runs() if one.id != run.id]
    return RunPage(
        run,
        summary,
        progress,
        items.failures,
        items.items,
        items.page,
        items.options,
        items.environments,
        others[:OTHERS],
    )


RUN_ENDPOINT = Endpoint(
    "/runs/{run}",
    view_run,
    RunQuery,
    RunPage,
    "run.html",
    "Run",
    "A run: what failed, and its items.",
    of_runs=("run",),
)


SAMPLES = 1000
"""Number of samples in the chart of a quantity; the report, which has thousands of rows, shows fewer."""


class ItemQuery(Struct, frozen=True):
    run: str
    key: str


class ItemPage(Struct, frozen=True):
    run: Run
    item: Row
    facts: dict[str, Any]
    """Facts of its environment."""
    cautions: list[Caution]
    charts: list[Chart]
    """Charts of the samples, one for each quantity and state of the caches."""


def view_item(reader: Reader, query: ItemQuery) -> ItemPage:
    run = reader.run(query.run)
    row, facts = reader.row(run, query.key)
    timed = [timing for timing in row.timings if timing.samples]
    charts = [samples(row, timing.quantity, timing.cache, most=SAMPLES) for timing in timed]
    cautions = list({caution.code: caution for _, caution in row.warnings()}.values())
    return ItemPage(run, row, facts, cautions, charts)


ITEM_ENDPOINT = Endpoint(
    "/runs/{run}/items/{key}",
    view_item,
    ItemQuery,
    ItemPage,
    "item.html",
    "Item",
    "An item of a run, with its samples.",
    of_runs=("run",),
)


class ProgressQuery(Struct, frozen=True):
    """Pages that show an unfinished run send it every two seconds."""

    run: str


def view_progress(reader: Reader, query: ProgressQuery) -> RunProgress:
    return reader.progress(reader.run(query.run))


PROGRESS_ENDPOINT = Endpoint(
    "/runs/{run}/progress", view_progress, ProgressQuery, RunProgress, "", "Progress", "How far a run is."
)
