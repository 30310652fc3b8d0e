"""One run: what failed first, then everything, in a table that can be sorted and filtered by its address."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.filters import Filters, Options, Sort, options_of, ordered
from opmark.dashboard.paging import Page, PageNumber, paged
from opmark.dashboard.progress import Progress, progress_of
from opmark.dashboard.reading import Reader
from opmark.schema import Run
from opmark.schema.item import Item
from opmark.schema.run_summary import RunSummary

ROWS = 200
LISTED = 20
"""Items of one reason; the filters find the others."""
OTHERS = 200
"""Runs that are offered to compare with."""


class Asked(Filters, frozen=True, kw_only=True):
    run: str
    sort: Sort = ""
    page: PageNumber = 1


class Failure(Struct, frozen=True):
    """What went wrong in the same way."""

    status: str
    reason: str
    count: int
    items: list[Item]
    """The first of them."""


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
    items: list[Item]
    """Those that fit, one page of them."""
    page: Page
    options: Options
    environments: dict[str, dict[str, Any]]
    others: list[Other]


def view(reader: Reader, asked: Asked) -> Answer:
    run = reader.run(asked.run)
    looked = reader.looked(run)
    fitting = [item for item in looked.items if asked.fits(item)]
    shown, page = paged(ordered(fitting, asked.sort), asked.page, ROWS)
    summary = reader.summaries([run])[0]
    progress = reader.progress(run) if summary.missing else progress_of(run, summary.statuses, looked.newest)
    others = [Other(one.id, one.label, one.started) for one in reader.runs() if one.id != run.id]
    return Answer(
        run,
        summary,
        progress,
        failures_of(looked.items),
        shown,
        page,
        options_of(looked.items),
        looked.environments,
        others[:OTHERS],
    )


def failures_of(items: Iterable[Item]) -> list[Failure]:
    """The most frequent reason first."""
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        if item.failed:
            groups.setdefault((item.status, item.reason), []).append(item)
    found = [Failure(status, reason, len(some), some[:LISTED]) for (status, reason), some in groups.items()]
    return sorted(found, key=lambda failure: -failure.count)


ENDPOINT = Endpoint("/runs/{run}", view, Asked, Answer, "run.html", "Run", "A run: what failed, and its items.")
