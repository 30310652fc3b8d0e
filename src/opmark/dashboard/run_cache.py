"""Runs that were looked at, kept in memory and brought up to date when they are asked for again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from opmark.analysis.rows import RunView
from opmark.api.items import CaseCache, refresh_view, view_stored_run
from opmark.dashboard.items import RunProgress, progress_of
from opmark.plugin.param import format_params
from opmark.plugin.registry import parameters_of
from opmark.schema import Case, Run
from opmark.schema.run import RunSummary
from opmark.store.changes import (
    ReadMark,
    RecordPosition,
    case_ids,
    count_cases,
    count_statuses,
    last_finding,
    last_position,
    marks_at,
    read_marks,
    runs_written_since,
    still_there,
)
from opmark.store.runs import marked_summaries
from opmark.store.sql import SqlStore

MOST_ROWS = 60_000
"""Upper bound on the rows in memory; the run that was looked at last stays, however many it has."""


@dataclass
class _Entry:
    lock: Lock = field(default_factory=Lock)
    mark: ReadMark | None = None
    view: RunView | None = None


class RunCache:
    def __init__(self, most: int = MOST_ROWS) -> None:
        self.most = most
        self._lock = Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.known = CaseCache()

    def has(self, run: Run) -> bool:
        """Whether it was looked at; what was written since may be missing."""
        with self._lock:
            entry = self._entries.get(run.id)
            return entry is not None and entry.view is not None

    def run_view(self, store: SqlStore, run: Run) -> RunView:
        """Who comes second waits for who came first, and finds what that one read."""
        with self._lock:
            entry = self._entries.setdefault(run.id, _Entry())
            self._entries.move_to_end(run.id)
        with entry.lock:
            mark = _mark(store, run.id)
            if entry.view is None or mark != entry.mark:
                entry.view, entry.mark = self._now(store, run, entry, mark), mark
            elif entry.view.run != run:
                entry.view = replace(entry.view, run=run)  # it got another label since
            found = entry.view
        self._forget_oldest()
        return found

    def _now(self, store: SqlStore, run: Run, entry: _Entry, mark: ReadMark) -> RunView:
        """Only what was written since is read, unless it was not all behind what was known: records can be removed,
        their numbers given again, and on a server one with a lower number can come later."""
        if entry.view and entry.mark and _goes_on(store, entry.mark, mark):
            before = replace(entry.view, run=run)
            found = refresh_view(store, before, entry.mark.last.number, mark.last.number, self.known)
            if found.records == mark.records:
                return found
        return view_stored_run(store, run, self.known, mark.last.number)

    def _forget_oldest(self) -> None:
        with self._lock:
            kept = 0
            for key in reversed(list(self._entries)):
                view = self._entries[key].view
                kept += len(view.rows) if view else 0
                if kept > self.most and key != next(reversed(self._entries)):
                    del self._entries[key]


class SummaryAtMark(NamedTuple):
    mark: ReadMark
    summary: RunSummary


class KeptSummaries:
    """What became of each run. Those that nothing was written to are not counted again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = RecordPosition()
        self._known: dict[str, SummaryAtMark] = {}

    def of(self, store: SqlStore, runs: Sequence[Run]) -> list[SummaryAtMark]:
        with self._lock:
            self._forget_what_grew(store, [run.id for run in runs if run.id in self._known])
            missing = [run for run in runs if run.id not in self._known]
            found = marked_summaries(store, missing)
            marks = marks_at(store, [(summary.records, newest) for summary, newest in found if newest])
            for summary, _ in found:
                self._known[summary.run.id] = SummaryAtMark(marks.get(summary.run.id, ReadMark()), summary)
            known = [self._known[run.id] for run in runs]
            return [
                SummaryAtMark(one.mark, replace(one.summary, run=run)) for one, run in zip(known, runs, strict=True)
            ]

    def keep_only(self, ids: Collection[str]) -> None:
        """Forget the summaries of runs that are gone."""
        with self._lock:
            for gone in self._known.keys() - ids:
                del self._known[gone]

    def _forget_what_grew(self, store: SqlStore, known: Sequence[str]) -> None:
        """In a file the last record has the highest number; on a server others come later, and each run is counted."""
        if store.database.shared:
            now = read_marks(store, known)
            changed: Collection[str] = [run for run in known if now.get(run, ReadMark()) != self._known[run].mark]
        else:
            if not self._known:
                self._last = last_position(store)
                return
            self._last, written = runs_written_since(store, self._last)
            changed = list(self._known) if written is None else written
        for run in changed:
            self._known.pop(run, None)


class KeptCases:
    """Cases never change; there are only ever more of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        self._known: list[tuple[Case, str]] = []

    def of(self, store: SqlStore) -> list[tuple[Case, str]]:
        with self._lock:
            count = count_cases(store)
            if count != self._count:
                found = sorted(store.cases(case_ids(store)).values(), key=lambda case: case.op)
                self._known = [(case, format_params(case, parameters_of(case.op))) for case in found]
                self._count = count
            return self._known


def progress(store: SqlStore, run: Run) -> RunProgress:
    """Counted by the database each time."""
    found = count_statuses(store, run.id)
    return progress_of(run, found.statuses, found.newest)


def _mark(store: SqlStore, run_id: str) -> ReadMark:
    return read_marks(store, [run_id]).get(run_id, ReadMark())._replace(findings=last_finding(store))


def _goes_on(store: SqlStore, before: ReadMark, now: ReadMark) -> bool:
    same = (before.findings, before.begun) == (now.findings, now.begun)
    return same and still_there(store, before.last)


# Answers that take long to find and are asked for again: the last few of a store, forgotten with it.

_Key = TypeVar("_Key", bound=Hashable)
_RememberedValue = TypeVar("_RememberedValue")


@dataclass
class _CachedAnswer(Generic[_RememberedValue]):
    lock: Lock = field(default_factory=Lock)
    found: list[_RememberedValue] = field(default_factory=list)
    """The one, as soon as it is made."""


class AnswerCache(Generic[_Key, _RememberedValue]):
    """A key has to say all that an answer depends on. Who comes second for the same waits for who came first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._known: OrderedDict[_Key, _CachedAnswer[_RememberedValue]] = OrderedDict()

    def get(self, key: _Key, make: Callable[[], _RememberedValue]) -> _RememberedValue:
        with self._lock:
            answer = self._known.setdefault(key, _CachedAnswer())
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        with answer.lock:
            if not answer.found:
                answer.found.append(make())
            return answer.found[0]


class OfStore(Generic[_RememberedValue]):
    """One of a kind for each store that is open."""

    def __init__(self, make: Callable[[], _RememberedValue]) -> None:
        self._make = make
        self._lock = Lock()
        self._known: WeakKeyDictionary[SqlStore, _RememberedValue] = WeakKeyDictionary()

    def of(self, store: SqlStore) -> _RememberedValue:
        with self._lock:
            if store not in self._known:
                self._known[store] = self._make()
            return self._known[store]
