"""Selects, sorts and pages the rows of a run, groups its failures, and estimates its progress.

The rows of a run in memory come from there; for another run only the records of the page are read, where that is
enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from opmark.analysis.rows import Row, RunView, Timing, seconds_of
from opmark.api.items import CaseCache, rows_at
from opmark.api.result import facts_of
from opmark.dashboard.navigation import Page, paginate, shorten
from opmark.schema import Run
from opmark.schema.record import FAILED, StoredFigure
from opmark.store.records import RecordOutline, record_outlines
from opmark.store.sql import SqlStore

Sort = Literal["", "name", "-name", "time", "-time", "share", "-share", "backend", "-backend", "memory", "-memory"]
"""Column to sort by; empty for the order of measurement. A `-` means descending."""
_Item = TypeVar("_Item")
StatusFilter = Literal[
    "", "ok", "unchecked", "disturbed", "failed", "wrong", "skipped", "error", "timeout", "oom", "killed"
]  # fmt: skip
"""`failed` stands for all statuses of failures."""


class Filters(Struct, frozen=True, kw_only=True):
    op: str = ""
    backend: str = ""
    dtype: str = ""
    phase: str = ""
    status: StatusFilter = ""
    q: Annotated[str, Meta(description="Words that are all in the name, the backend or the reason.")] = ""

    def filters(self) -> dict[str, str]:
        """Return the filters that are set, for the address of another page of the run."""
        return {name: value for name in Filters.__struct_fields__ if (value := getattr(self, name))}

    def matches(self, item: Row | RecordOutline) -> bool:
        if self.status == "failed" and not item.failed:
            return False
        if self.status not in ("", "failed", item.status):
            return False
        exact = ((self.op, item.op), (self.backend, item.backend), (self.dtype, item.dtype), (self.phase, item.phase))
        if any(value not in ("", own) for value, own in exact):
            return False
        return not self.q or (isinstance(item, Row) and _contains_words(item, self.q))


class FilterOptions(Struct, frozen=True):
    """The values that each filter can take in a run."""

    ops: list[str]
    backends: list[str]
    dtypes: list[str]
    phases: list[str]
    statuses: list[str]


def filter_options(items: Sequence[Row] | Sequence[RecordOutline]) -> FilterOptions:
    found = zip(*{(item.op, item.backend, item.dtype, item.phase, item.status) for item in items}, strict=True)
    return FilterOptions(*[sorted(filter(None, set(values))) for values in (list(found) or [()] * 5)])


def sort_items(
    items: Iterable[_Item], sort: Sort, keys: Mapping[str, Callable[[Any], Any]] | None = None
) -> list[_Item]:
    """Sort items; those without a value come last in either direction. `keys` are needed for items other than `Row`."""
    rows = list(items)
    if not sort:
        return rows
    key: Callable[[Any], Any] = (keys or _ROW_KEYS)[sort.removeprefix("-")]
    down = sort.startswith("-")
    valued = [(key(item), item) for item in rows]
    with_value = [pair for pair in valued if pair[0] is not None]
    with_value.sort(key=lambda pair: pair[0], reverse=down)
    return [item for _, item in with_value] + [item for value, item in valued if value is None]


def _contains_words(item: Row, words: str) -> bool:
    text = f"{item.name} {item.where} {item.implementation} {item.reason} {item.case}".casefold()
    return all(word in text for word in words.casefold().split())


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _order_of_time(headline: Timing | StoredFigure | None, seconds: float | None) -> tuple[str, str, float] | None:
    """Return the key to sort by: times of one quantity and state of the caches among each other."""
    return None if headline is None or seconds is None else (headline.quantity, headline.cache, seconds)


_ROW_KEYS: dict[str, Callable[[Row], Any]] = {
    "name": lambda item: item.name,
    "time": lambda item: _order_of_time(item.headline, _number(item.seconds)),
    "share": lambda item: _number(item.of_peak.share) if item.of_peak else None,
    "backend": lambda item: item.where,
    "memory": lambda item: item.memory,
}

LISTED = 20
"""Number of rows that are listed for one reason; the filters find the others."""
_BY_TIME = ("time", "-time")


class ItemRequest(NamedTuple):
    filters: Filters
    sort: Sort
    page: int
    rows: int
    """Number of rows per page."""

    @property
    def needs_all(self) -> bool:
        """Whether all records have to be read: names, shares and memory are not in the columns of a record."""
        return bool(self.filters.q) or self.sort not in ("", *_BY_TIME)


class Failure(Struct, frozen=True):
    """Rows that failed with the same status and reason."""

    status: str
    reason: str
    count: int
    items: list[Row]
    """The first `LISTED` rows. Long reasons are shortened; the page of a row has its whole reason."""


class RunItems(NamedTuple):
    items: list[Row]
    """One page of the rows that match the filters."""
    page: Page
    failures: list[Failure]
    options: FilterOptions
    environments: dict[str, dict[str, Any]]
    newest: str
    """Start time of the last record."""


class _Failing(Protocol):
    @property
    def status(self) -> Any: ...
    @property
    def reason(self) -> str: ...
    @property
    def failed(self) -> bool: ...


_Row = TypeVar("_Row", bound=_Failing)


def select_items(view: RunView, request: ItemRequest) -> RunItems:
    fitting = [item for item in view.rows if request.filters.matches(item)]
    page_rows, page = paginate(sort_items(fitting, request.sort), request.page, request.rows)
    failures = [_failure(*why, len(some), some[:LISTED]) for why, some in _group_failures(view.rows)]
    return RunItems(
        _shorten_reasons(page_rows), page, failures, filter_options(view.rows), view.environments, view.newest
    )


def select_stored_items(store: SqlStore, run: Run, known: CaseCache, request: ItemRequest) -> RunItems | None:
    """Do the same as `select_items` for a run that is not in memory. Return None if all records have to be read: to
    sort by something that is not in their columns, and if several records, of several processes, may be one row."""
    if request.needs_all:
        return None
    rows = record_outlines(store, run.id, figures=bool(request.sort))
    if len({(row.case, row.backend, row.implementation, row.threads) for row in rows}) < len(rows):
        return None
    fitting = [row for row in rows if request.filters.matches(row)]
    page_rows, page = paginate(sort_items(fitting, request.sort, _OUTLINE_KEYS), request.page, request.rows)
    failed = _group_failures(rows)
    tasks = dict.fromkeys(row.task for some in (page_rows, *(some[:LISTED] for _, some in failed)) for row in some)
    items = rows_at(store, run, list(tasks), known)
    return RunItems(
        _shorten_reasons(items[row.task] for row in page_rows),
        page,
        [_failure(*why, len(some), [items[row.task] for row in some[:LISTED]]) for why, some in failed],
        filter_options(rows),
        facts_of(store, (row.environment for row in rows)),
        max((row.started for row in rows), default=""),
    )


_OUTLINE_KEYS: dict[str, Callable[[RecordOutline], Any]] = {
    "time": lambda row: _order_of_time(next(iter(row.figures), None), seconds_of(row.figures))
}


def _failure(status: str, reason: str, count: int, first: list[Row]) -> Failure:
    return Failure(status, shorten(reason), count, _shorten_reasons(first))


def _shorten_reasons(items: Iterable[Row]) -> list[Row]:
    return [item if (short := shorten(item.reason)) == item.reason else replace(item, reason=short) for item in items]


def _group_failures(rows: Iterable[_Row]) -> list[tuple[tuple[str, str], list[_Row]]]:
    """Return failed rows by status and reason, the most frequent reason first."""
    groups: dict[tuple[str, str], list[_Row]] = {}
    for row in rows:
        if row.failed:
            groups.setdefault((row.status, row.reason), []).append(row)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


# The progress of a run that may still be written.

SHORTEST, LONGEST = 20.0, 120.0
"""Limits, in seconds, of the time without a record after which a run counts as quiet."""
SLOWER = 10.0
"""Between these limits, that time is the mean time of a record times this factor: one may take longer than others."""
State = Literal["running", "finished", "quiet"]


class RunProgress(Struct, frozen=True):
    run: str
    tasks: int
    records: int
    failed: int
    statuses: dict[str, int]
    state: State
    """`quiet`: records are missing and none was written lately, because the run was interrupted or is slow."""
    last: str = ""
    """Start time of the last record; UTC, ISO 8601."""
    quiet: float | None = None
    """Seconds since then."""
    per_second: float | None = None
    remaining: float | None = None
    """Seconds until the end at the rate so far."""


def estimate_progress(run: Run, statuses: dict[str, int], last: str, now: datetime | None = None) -> RunProgress:
    now = now or datetime.now(timezone.utc)
    records = sum(statuses.values())
    begun, newest = _parse_time(run.started), _parse_time(last) or _parse_time(run.started)
    quiet = max(0.0, (now - newest).total_seconds()) if newest else None
    taken = (newest - begun).total_seconds() if begun and newest else 0.0
    rate = records / taken if taken > 0 and records else None
    patience = min(LONGEST, max(SHORTEST, SLOWER / rate)) if rate else LONGEST
    state: State = "finished" if records >= run.tasks else "quiet" if quiet is None or quiet > patience else "running"
    left = (run.tasks - records) / rate if rate and state == "running" else None
    failed = sum(count for status, count in statuses.items() if status in FAILED)
    return RunProgress(run.id, run.tasks, records, failed, statuses, state, last, quiet, rate, left)


def _parse_time(text: str) -> datetime | None:
    """Return a time, or None for invalid text, which a store of another origin may have."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
