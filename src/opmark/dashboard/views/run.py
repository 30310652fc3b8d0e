"""One run: what failed first, then everything, in a table that can be sorted and filtered by its address."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from opmark.analysis.rows import Row
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.filters import Filters, Options, Sort
from opmark.dashboard.paging import Page, PageNumber
from opmark.dashboard.parts import Failure, Wanted
from opmark.dashboard.progress import Progress, progress_of
from opmark.dashboard.reading import Reader
from opmark.schema import Run
from opmark.schema.run_summary import RunSummary

ROWS = 200
OTHERS = 200
"""Runs that are offered to compare with."""


class Asked(Filters, frozen=True, kw_only=True):
    run: str
    sort: Sort = ""
    page: PageNumber = 1


class Other(Struct, frozen=True):
    """A run to compare with."""

    id: str
    label: str
    started: str


class Answer(Struct, frozen=True):
    run: Run
    summary: RunSummary
    progress: Progress
    failures: list[Failure]
    items: list[Row]
    """Rows that fit the filters, one page of them."""
    page: Page
    options: Options
    environments: dict[str, dict[str, Any]]
    others: list[Other]


def view(reader: Reader, asked: Asked) -> Answer:
    run = reader.run(asked.run)
    part = reader.part(run, Wanted(asked, asked.sort, asked.page, ROWS))
    summary = reader.summaries([run])[0]
    progress = reader.progress(run) if summary.missing else progress_of(run, summary.statuses, part.newest)
    others = [Other(one.id, one.label, one.started) for one in reader.runs() if one.id != run.id]
    return Answer(
        run, summary, progress, part.failures, part.items, part.page, part.options, part.environments, others[:OTHERS]
    )


ENDPOINT = Endpoint(
    "/runs/{run}", view, Asked, Answer, "run.html", "Run", "A run: what failed, and its items.", of_runs=("run",)
)
