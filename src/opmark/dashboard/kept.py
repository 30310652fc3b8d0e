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
from opmark.dashboard.progress import Progress, progress_of
from opmark.registry import parameters_of
from opmark.schema import Case, Run
from opmark.schema.item import Looked
from opmark.schema.run_summary import RunSummary
from opmark.schema.shown import shown
from opmark.store.sql import SqlStore
from opmark.store.summaries import marked_summaries
from opmark.store.tables import BENCH_CASE, FINDING, RECORD

MOST_ITEMS = 60_000
"""In memory; the run that was looked at last stays, however many it has."""
_AT_ONCE = 500


class Mark(NamedTuple):
    """How far something was read: while this stays the same, so does what was read."""

    records: int
    newest: int
    """The number of the last record."""
    findings: int = 0
    """That of the last thing found out about a machine: ceilings are of these."""


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
        and on a server one with a lower number can come later."""
        if entry.looked and entry.mark and entry.mark.findings == mark.findings:
            before = replace(entry.looked, run=run)
            found = look_again(store, before, entry.mark.newest, mark.newest, self.known)
            if found.records == mark.records:
                return found
        return look_at(store, run, self.known, mark.newest)

    def _forget_oldest(self) -> None:
        with self._lock:
            kept = 0
            for key in reversed(list(self._entries)):
                looked = self._entries[key].looked
                kept += len(looked.items) if looked else 0
                if kept > self.most and key != next(reversed(self._entries)):
                    del self._entries[key]


class KeptSummaries:
    """What became of each run. One that has all of its records is not counted again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, tuple[Mark, RunSummary]] = {}

    def of(self, store: SqlStore, runs: Sequence[Run]) -> list[RunSummary]:
        with self._lock:
            growing = [run.id for run in runs if run.id in self._known and not self._is_whole(run)]
            marks = _marks(store, growing)
            stale = [run for run in runs if run.id not in self._known or self._known[run.id][0] != marks.get(run.id)]
            stale = [run for run in stale if not self._is_whole(run)]
            for summary, newest in marked_summaries(store, stale):
                self._known[summary.run.id] = Mark(summary.records, newest), summary
            return [replace(self._known[run.id][1], run=run) for run in runs]

    def keep_only(self, ids: Collection[str]) -> None:
        """Those of runs that are gone are forgotten: one of the same name may come again, with other records."""
        with self._lock:
            for gone in self._known.keys() - ids:
                del self._known[gone]

    def _is_whole(self, run: Run) -> bool:
        known = self._known.get(run.id)
        return known is not None and known[0].records >= run.tasks


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
    """Counted by the database, each time."""
    query = select(RECORD.c.status, func.count(), func.max(RECORD.c.started))
    query = query.where(RECORD.c.run_id == run.id).group_by(RECORD.c.status)
    with store.reading() as connection:
        rows = connection.execute(query).all()
    return progress_of(run, {status: count for status, count, _ in rows}, max((last for *_, last in rows), default=""))


def _mark(store: SqlStore, run_id: str) -> Mark:
    records = select(func.count(), func.max(RECORD.c.number)).where(RECORD.c.run_id == run_id)
    with store.reading() as connection:
        count, newest = connection.execute(records).one()
    return Mark(count, newest or 0, findings(store))


def findings(store: SqlStore) -> int:
    """The number of the last one."""
    with store.reading() as connection:
        return connection.execute(select(func.max(FINDING.c.number))).scalar() or 0


def _marks(store: SqlStore, ids: Sequence[str]) -> dict[str, Mark]:
    """By run, without those that have no record."""
    found: dict[str, Mark] = {}
    with store.reading() as connection:
        for start in range(0, len(ids), _AT_ONCE):
            query = select(RECORD.c.run_id, func.count(), func.max(RECORD.c.number)).group_by(RECORD.c.run_id)
            some = query.where(RECORD.c.run_id.in_(ids[start : start + _AT_ONCE]))
            found |= {run: Mark(count, newest) for run, count, newest in connection.execute(some)}
    return found
