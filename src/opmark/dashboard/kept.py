"""Runs that were looked at, kept in memory and brought up to date when they are asked for again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from msgspec.structs import replace
from sqlalchemy import func, select

from opmark.api.looking import Known, look_again, look_at
from opmark.dashboard.marks import Mark, Place, counted, findings, grown, last_place, marked, place_at
from opmark.dashboard.progress import Progress, progress_of
from opmark.registry import parameters_of
from opmark.schema import Case, Run
from opmark.schema.item import Looked
from opmark.schema.run_summary import RunSummary
from opmark.schema.shown import shown
from opmark.store.sql import SqlStore
from opmark.store.summaries import marked_summaries
from opmark.store.tables import BENCH_CASE, RECORD

MOST_ITEMS = 60_000
"""In memory; the run that was looked at last stays, however many it has."""


@dataclass
class _Entry:
    lock: Lock = field(default_factory=Lock)
    mark: Mark | None = None
    looked: Looked | None = None


class Kept:
    def __init__(self, most: int = MOST_ITEMS) -> None:
        self.most = most
        self._lock = Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.known = Known()

    def has(self, run: Run) -> bool:
        """Whether it was looked at; what was written since may be missing."""
        with self._lock:
            entry = self._entries.get(run.id)
            return entry is not None and entry.looked is not None

    def looked(self, store: SqlStore, run: Run) -> Looked:
        """Who comes second waits for who came first, and finds what that one read."""
        with self._lock:
            entry = self._entries.setdefault(run.id, _Entry())
            self._entries.move_to_end(run.id)
        with entry.lock:
            mark = _mark(store, run.id)
            if entry.looked is None or mark != entry.mark:
                entry.looked, entry.mark = self._now(store, run, entry, mark), mark
            elif entry.looked.run != run:
                entry.looked = replace(entry.looked, run=run)  # it got another label since
            found = entry.looked
        self._forget_oldest()
        return found

    def _now(self, store: SqlStore, run: Run, entry: _Entry, mark: Mark) -> Looked:
        """Only what was written since is read, unless it was not all behind what was known: records can be removed,
        their numbers given again, and on a server one with a lower number can come later."""
        if entry.looked and entry.mark and _goes_on(store, entry.mark, mark):
            before = replace(entry.looked, run=run)
            found = look_again(store, before, entry.mark.last.number, mark.last.number, self.known)
            if found.records == mark.records:
                return found
        return look_at(store, run, self.known, mark.last.number)

    def _forget_oldest(self) -> None:
        with self._lock:
            kept = 0
            for key in reversed(list(self._entries)):
                looked = self._entries[key].looked
                kept += len(looked.items) if looked else 0
                if kept > self.most and key != next(reversed(self._entries)):
                    del self._entries[key]


class Counted(NamedTuple):
    mark: Mark
    summary: RunSummary


class KeptSummaries:
    """What became of each run. Those that nothing was written to are not counted again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = Place()
        self._known: dict[str, Counted] = {}

    def of(self, store: SqlStore, runs: Sequence[Run]) -> list[Counted]:
        with self._lock:
            self._forget_what_grew(store, [run.id for run in runs if run.id in self._known])
            missing = [run for run in runs if run.id not in self._known]
            found = marked_summaries(store, missing)
            marks = marked(store, [(summary.records, newest) for summary, newest in found if newest])
            for summary, _ in found:
                self._known[summary.run.id] = Counted(marks.get(summary.run.id, Mark()), summary)
            known = [self._known[run.id] for run in runs]
            return [Counted(one.mark, replace(one.summary, run=run)) for one, run in zip(known, runs, strict=True)]

    def keep_only(self, ids: Collection[str]) -> None:
        """Those of runs that are gone are forgotten."""
        with self._lock:
            for gone in self._known.keys() - ids:
                del self._known[gone]

    def _forget_what_grew(self, store: SqlStore, known: Sequence[str]) -> None:
        """In a file the last record has the highest number; on a server others come later, and each run is counted."""
        if store.database.shared:
            now = counted(store, known)
            changed: Collection[str] = [run for run in known if now.get(run, Mark()) != self._known[run].mark]
        else:
            with store.reading() as connection:
                last = last_place(connection)
                told = grown(connection, self._last) if self._known and last != self._last else set()
            changed, self._last = list(self._known) if told is None else told, last
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
            with store.reading() as connection:
                count = connection.execute(select(func.count()).select_from(BENCH_CASE)).scalar() or 0
                ids = [] if count == self._count else list(connection.execute(select(BENCH_CASE.c.id)).scalars())
            if ids:
                found = sorted(store.cases(ids).values(), key=lambda case: case.op)
                self._known = [(case, shown(case, parameters_of(case.op))) for case in found]
                self._count = count
            return self._known


def progress(store: SqlStore, run: Run) -> Progress:
    """Counted by the database, each time, from an index; of the records only the last of each status is read."""
    query = select(RECORD.c.status, func.count(), func.max(RECORD.c.number))
    query = query.where(RECORD.c.run_id == run.id).group_by(RECORD.c.status)
    with store.reading() as connection:
        rows = connection.execute(query).all()
        last = select(func.max(RECORD.c.started)).where(RECORD.c.number.in_([number for *_, number in rows]))
        newest = connection.execute(last).scalar() or ""
    return progress_of(run, {status: count for status, count, _ in rows}, newest)


def _mark(store: SqlStore, run_id: str) -> Mark:
    return counted(store, [run_id]).get(run_id, Mark())._replace(findings=findings(store))


def _goes_on(store: SqlStore, before: Mark, now: Mark) -> bool:
    if (before.findings, before.begun) != (now.findings, now.begun):
        return False
    with store.reading() as connection:
        return place_at(connection, before.last.number) == before.last
