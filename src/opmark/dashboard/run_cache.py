"""Caches of the dashboard: run views, summaries of runs, the list of cases, and answers that take long to compute.

Cached runs are brought up to date when they are requested again: only records written since are read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from opmark.analysis.rows import RunView, case_parameters
from opmark.api.items import CaseCache, refresh_view, view_stored_run
from opmark.dashboard.items import RunProgress, estimate_progress
from opmark.schema import Case, Run
from opmark.schema.case import shown_case
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
"""Upper bound on the rows in memory; the run that was requested last stays, however many it has."""


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
        """Whether a view of the run is in memory; records written since may be missing in it."""
        with self._lock:
            entry = self._entries.get(run.id)
            return entry is not None and entry.view is not None

    def run_view(self, store: SqlStore, run: Run) -> RunView:
        """Return the up-to-date view of a run. A second thread waits for the first and gets what that one read."""
        with self._lock:
            entry = self._entries.setdefault(run.id, _Entry())
            self._entries.move_to_end(run.id)
        with entry.lock:
            mark = _read_mark(store, run.id)
            if entry.view is None or mark != entry.mark:
                entry.view, entry.mark = self._read(store, run, entry, mark), mark
            elif entry.view.run != run:
                entry.view = replace(entry.view, run=run)  # its label was changed
            view = entry.view
        self._forget_oldest()
        return view

    def _read(self, store: SqlStore, run: Run, entry: _Entry, mark: ReadMark) -> RunView:
        """Read the records written since the last time, or all if the new ones do not simply follow the known ones:
        records can be removed, their numbers reused, and on a server one with a lower number can come later."""
        if entry.view and entry.mark and _only_appended(store, entry.mark, mark):
            before = replace(entry.view, run=run)
            found = refresh_view(store, before, entry.mark.last.number, mark.last.number, self.known)
            if found.records == mark.records:
                return found
        return view_stored_run(store, run, self.known, mark.last.number)

    def _forget_oldest(self) -> None:
        with self._lock:
            count = 0
            for key in reversed(list(self._entries)):
                view = self._entries[key].view
                count += len(view.rows) if view else 0
                if count > self.most and key != next(reversed(self._entries)):
                    del self._entries[key]


class SummaryAtMark(NamedTuple):
    mark: ReadMark
    summary: RunSummary


class SummaryCache:
    """Summaries of runs. A run is only counted again after something was written to it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = RecordPosition()
        self._known: dict[str, SummaryAtMark] = {}

    def get(self, store: SqlStore, runs: Sequence[Run]) -> list[SummaryAtMark]:
        with self._lock:
            self._forget_changed(store, [run.id for run in runs if run.id in self._known])
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

    def _forget_changed(self, store: SqlStore, known: Sequence[str]) -> None:
        """Forget the summaries of runs that were written to.

        In a file the last record has the highest number. On a server records with lower numbers can come later, so that
        the mark of each run is read."""
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


class CaseListCache:
    """All cases with their parameters as text. Cases never change and are never removed, so that their number is enough
    to notice new ones."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        self._known: list[tuple[Case, str]] = []

    def get(self, store: SqlStore) -> list[tuple[Case, str]]:
        with self._lock:
            count = count_cases(store)
            if count != self._count:
                found = sorted(store.cases(case_ids(store)).values(), key=lambda case: shown_case(case).op)
                self._known = [(case, case_parameters(case)) for case in found]
                self._count = count
            return self._known


def read_progress(store: SqlStore, run: Run) -> RunProgress:
    """Return the progress of a run, for which the database counts the records each time."""
    found = count_statuses(store, run.id)
    return estimate_progress(run, found.statuses, found.newest)


def _read_mark(store: SqlStore, run_id: str) -> ReadMark:
    return read_marks(store, [run_id]).get(run_id, ReadMark())._replace(findings=last_finding(store))


def _only_appended(store: SqlStore, before: ReadMark, now: ReadMark) -> bool:
    same = (before.findings, before.begun) == (now.findings, now.begun)
    return same and still_there(store, before.last)


_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


@dataclass
class _CachedAnswer(Generic[_Value]):
    lock: Lock = field(default_factory=Lock)
    found: list[_Value] = field(default_factory=list)
    """The answer, once it is made; a list because None is a possible answer."""


class AnswerCache(Generic[_Key, _Value]):
    """The answers that were used last. A key has to contain all that an answer depends on. A second thread that
    requests the same answer waits until the first has made it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._known: OrderedDict[_Key, _CachedAnswer[_Value]] = OrderedDict()

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        with self._lock:
            answer = self._known.setdefault(key, _CachedAnswer())
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        with answer.lock:
            if not answer.found:
                answer.found.append(make())
            return answer.found[0]


class PerStore(Generic[_Value]):
    """Holds one value for each open store, and drops it together with the store."""

    def __init__(self, make: Callable[[], _Value]) -> None:
        self._make = make
        self._lock = Lock()
        self._known: WeakKeyDictionary[SqlStore, _Value] = WeakKeyDictionary()

    def get(self, store: SqlStore) -> _Value:
        with self._lock:
            if store not in self._known:
                self._known[store] = self._make()
            return self._known[store]
