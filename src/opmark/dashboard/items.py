"""What a page shows of a run: of one that was looked at from memory, of another from no more records than it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from opmark.analysis.rows import Row, RunView, seconds_of
from opmark.api.items import CaseCache, rows_at
from opmark.api.result import facts_of
from opmark.dashboard.navigation import Page, brief, paged
from opmark.schema import Run
from opmark.schema.record import FAILED
from opmark.store.records import RecordOutline, record_outlines
from opmark.store.sql import SqlStore

# Which items of a run are shown, and in which order: the same for its table and for its figures.

Sort = Literal["", "name", "-name", "time", "-time", "share", "-share", "backend", "-backend", "memory", "-memory"]
"""Empty: as it was measured. A `-` turns the order around."""
_FilterRow = TypeVar("_FilterRow")
Shown = Literal["", "ok", "failed", "wrong", "skipped", "error", "timeout", "oom"]
"""`failed` is whatever went wrong."""


class Filters(Struct, frozen=True, kw_only=True):
    op: str = ""
    backend: str = ""
    dtype: str = ""
    phase: str = ""
    status: Shown = ""
    q: Annotated[str, Meta(description="Words that are all in the name, the backend or the reason.")] = ""

    def filters(self) -> dict[str, str]:
        """The filters that are set: for the address of another page of the run."""
        return {name: value for name in Filters.__struct_fields__ if (value := getattr(self, name))}

    def fits(self, item: Row | RecordOutline) -> bool:
        if self.status == "failed" and not item.failed:
            return False
        if self.status not in ("", "failed", item.status):
            return False
        exact = ((self.op, item.op), (self.backend, item.backend), (self.dtype, item.dtype), (self.phase, item.phase))
        if any(wanted not in ("", found) for wanted, found in exact):
            return False
        return not self.q or (isinstance(item, Row) and _has(item, self.q))


class FilterOptions(Struct, frozen=True):
    """What can be asked for, of a run."""

    ops: list[str]
    backends: list[str]
    dtypes: list[str]
    phases: list[str]
    statuses: list[str]


def options_of(items: Sequence[Row] | Sequence[RecordOutline]) -> FilterOptions:
    found = zip(*{(item.op, item.backend, item.dtype, item.phase, item.status) for item in items}, strict=True)
    return FilterOptions(*[sorted(filter(None, set(values))) for values in (list(found) or [()] * 5)])


def ordered(
    items: Iterable[_FilterRow], sort: Sort, keys: Mapping[str, Callable[[Any], Any]] | None = None
) -> list[_FilterRow]:
    """What has no value comes last, whichever way. `keys`: of what is no Row."""
    rows = list(items)
    if not sort:
        return rows
    key: Callable[[Any], Any] = (keys or _FILTER_KEYS)[sort.removeprefix("-")]
    down = sort.startswith("-")
    valued = [(key(item), item) for item in rows]
    with_value = [pair for pair in valued if pair[0] is not None]
    with_value.sort(key=lambda pair: pair[0], reverse=down)
    return [item for _, item in with_value] + [item for value, item in valued if value is None]


def _has(item: Row, words: str) -> bool:
    text = f"{item.name} {item.where} {item.implementation} {item.reason} {item.case}".casefold()
    return all(word in text for word in words.casefold().split())


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


_FILTER_KEYS: dict[str, Callable[[Row], Any]] = {
    "name": lambda item: item.name,
    "time": lambda item: _number(item.seconds),
    "share": lambda item: _number(item.of_peak.share) if item.of_peak else None,
    "backend": lambda item: item.where,
    "memory": lambda item: item.memory,
}

LISTED = 20
"""Items of one reason; the filters find the others."""
_BY_TIME = ("time", "-time")


class ItemRequest(NamedTuple):
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


class RunItems(NamedTuple):
    items: list[Row]
    """Rows that fit the filters, one page of them."""
    page: Page
    failures: list[Failure]
    options: FilterOptions
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


def part_of(view: RunView, wanted: ItemRequest) -> RunItems:
    fitting = [item for item in view.rows if wanted.filters.fits(item)]
    shown, page = paged(ordered(fitting, wanted.sort), wanted.page, wanted.rows)
    failures = [_failure(*why, len(some), some[:LISTED]) for why, some in _failed(view.rows)]
    return RunItems(_brief(shown), page, failures, options_of(view.rows), view.environments, view.newest)


def part_at(store: SqlStore, run: Run, known: CaseCache, wanted: ItemRequest) -> RunItems | None:
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
    return RunItems(
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


# How far a run is that may still be written.

SHORTEST, LONGEST = 20.0, 120.0
"""Seconds without a record after which nobody seems to be writing any more: so many at least, and at most."""
SLOWER = 10.0
"""Between these, so many times what its records took in the mean: one may take longer than others."""
State = Literal["running", "finished", "quiet"]


class RunProgress(Struct, frozen=True):
    run: str
    tasks: int
    records: int
    failed: int
    statuses: dict[str, int]
    state: State
    """`quiet`: records are missing, and none was written lately: it was interrupted, or it is slow."""
    last: str = ""
    """When the last record was begun; UTC, ISO 8601."""
    quiet: float | None = None
    """Seconds since then."""
    per_second: float | None = None
    remaining: float | None = None
    """Seconds until it is done, if it goes on as it did."""


def progress_of(run: Run, statuses: dict[str, int], last: str, now: datetime | None = None) -> RunProgress:
    now = now or datetime.now(timezone.utc)
    records = sum(statuses.values())
    begun, newest = _time(run.started), _time(last) or _time(run.started)
    quiet = max(0.0, (now - newest).total_seconds()) if newest else None
    taken = (newest - begun).total_seconds() if begun and newest else 0.0
    rate = records / taken if taken > 0 and records else None
    patience = min(LONGEST, max(SHORTEST, SLOWER / rate)) if rate else LONGEST
    state: State = "finished" if records >= run.tasks else "quiet" if quiet is None or quiet > patience else "running"
    left = (run.tasks - records) / rate if rate and state == "running" else None
    failed = sum(count for status, count in statuses.items() if status in FAILED)
    return RunProgress(run.id, run.tasks, records, failed, statuses, state, last, quiet, rate, left)


def _time(text: str) -> datetime | None:
    """None for what no clock of ours wrote: stores come from anywhere."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
