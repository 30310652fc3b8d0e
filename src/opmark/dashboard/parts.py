"""What a page shows of a run: of one that was looked at from memory, of another from no more records than it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from opmark.analysis.rows import Row, RunView, seconds_of
from opmark.api.common import facts_of
from opmark.api.looking import Known, rows_at
from opmark.dashboard.filters import Filters, Options, Sort, options_of, ordered
from opmark.dashboard.paging import Page, paged
from opmark.dashboard.shown import brief
from opmark.schema import Run
from opmark.store.records import RecordOutline, record_outlines
from opmark.store.sql import SqlStore

LISTED = 20
"""Items of one reason; the filters find the others."""
_BY_TIME = ("time", "-time")


class Wanted(NamedTuple):
    filters: Filters
    sort: Sort
    page: int
    rows: int
    """Number of rows on a page."""

    @property
    def needs_all(self) -> bool:
        """Names, shares and memory are not in the columns of a record."""
        return bool(self.filters.q) or self.sort not in ("", *_BY_TIME)


class Failure(Struct, frozen=True):
    """What went wrong in the same way."""

    status: str
    reason: str
    count: int
    items: list[Row]
    """The first of them. Reasons are cut where they are long; an item alone has all of its own."""


class Part(NamedTuple):
    items: list[Row]
    """Rows that fit the filters, one page of them."""
    page: Page
    failures: list[Failure]
    options: Options
    environments: dict[str, dict[str, Any]]
    newest: str
    """When the last record was begun."""


class _Failing(Protocol):
    @property
    def status(self) -> Any: ...
    @property
    def reason(self) -> str: ...
    @property
    def failed(self) -> bool: ...


_Row = TypeVar("_Row", bound=_Failing)


def part_of(view: RunView, wanted: Wanted) -> Part:
    fitting = [item for item in view.rows if wanted.filters.fits(item)]
    shown, page = paged(ordered(fitting, wanted.sort), wanted.page, wanted.rows)
    failures = [_failure(*why, len(some), some[:LISTED]) for why, some in _failed(view.rows)]
    return Part(_brief(shown), page, failures, options_of(view.rows), view.environments, view.newest)


def part_at(store: SqlStore, run: Run, known: Known, wanted: Wanted) -> Part | None:
    """The same as `part_of`, of a run that nobody looked at yet. None where that takes a look at all of it: to sort by
    what only the records themselves tell, and where several records may be one item, of several processes."""
    if wanted.needs_all:
        return None
    rows = record_outlines(store, run.id, figures=bool(wanted.sort))
    if len({(row.case, row.backend, row.implementation, row.threads) for row in rows}) < len(rows):
        return None
    fitting = [row for row in rows if wanted.filters.fits(row)]
    shown, page = paged(ordered(fitting, wanted.sort, _KEYS), wanted.page, wanted.rows)
    failed = _failed(rows)
    tasks = dict.fromkeys(row.task for some in (shown, *(some[:LISTED] for _, some in failed)) for row in some)
    items = rows_at(store, run, list(tasks), known)
    return Part(
        _brief(items[row.task] for row in shown),
        page,
        [_failure(*why, len(some), [items[row.task] for row in some[:LISTED]]) for why, some in failed],
        options_of(rows),
        facts_of(store, (row.environment for row in rows)),
        max((row.started for row in rows), default=""),
    )


_KEYS: dict[str, Callable[[RecordOutline], Any]] = {"time": lambda row: seconds_of(row.figures)}


def _failure(status: str, reason: str, count: int, first: list[Row]) -> Failure:
    return Failure(status, brief(reason), count, _brief(first))


def _brief(items: Iterable[Row]) -> list[Row]:
    return [item if (short := brief(item.reason)) == item.reason else replace(item, reason=short) for item in items]


def _failed(rows: Iterable[_Row]) -> list[tuple[tuple[str, str], list[_Row]]]:
    """By status and reason, the most frequent one first."""
    groups: dict[tuple[str, str], list[_Row]] = {}
    for row in rows:
        if row.failed:
            groups.setdefault((row.status, row.reason), []).append(row)
    return sorted(groups.items(), key=lambda group: -len(group[1]))
