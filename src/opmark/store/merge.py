"""Merge the runs of one store into another, each in one transaction. Merging again adds nothing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from sqlalchemy import Connection, Row, Table, insert, select

from opmark.errors import UserError
from opmark.store.protocol import Store
from opmark.store.record_codec import case_row, from_row, storable_json, to_row
from opmark.store.sql import SqlStore
from opmark.store.tables import BENCH_CASE, ENVIRONMENT, FINDING, PACKED, RECORD, RUN, RUN_NOTE

_AT_ONCE = 200
"""Records in memory at once: they may have thousands of samples."""
_ID = re.compile(r"(?!\.)[\w.-]{1,48}", re.ASCII)
"""Valid form of an id: safe as a file name, and short enough to get a number appended."""
_LONGEST = 42
_JSON = ("facts", "figures")
_SAME = (RUN.c.started, RUN.c.plan, RUN.c.command)
"""Columns in which two runs of the same id must agree to be the same run."""


@dataclass
class Merged:
    new: list[str] = field(default_factory=list)
    """Ids of new runs, as they are in the store that was merged into."""
    completed: list[str] = field(default_factory=list)
    """Ids of runs that were there already, with fewer records."""
    there: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    """Old ids to new ones, where another run has the id."""
    records: int = 0
    findings: int = 0


def merge(into: Store, source: Store) -> Merged:
    """Copy what `source` has and `into` lacks. After an error it can be repeated."""
    ours, theirs = _sql(into), _sql(source)
    done = Merged()
    with theirs.reading() as there:
        for run in there.execute(select(RUN).order_by(RUN.c.number)).all():
            with ours.writing() as here:
                _RunMerger(ours, here, there, done).run(run)
        known = there.execute(select(FINDING).order_by(FINDING.c.number)).mappings().all()
    with ours.writing() as here:
        done.findings = add_findings(here, [_without(row, "number") for row in known])
    return done


def _sql(store: Store) -> SqlStore:
    inner = getattr(store, "store", store)
    if not isinstance(inner, SqlStore):
        raise UserError("merge: a store in memory has no place among these", "name a file or a server with --db")
    return inner


class _RunMerger:
    def __init__(self, ours: SqlStore, here: Connection, there: Connection, done: Merged) -> None:
        self._ours, self._here, self._there, self._done = ours, here, there, done
        self._copied: dict[Table, set[str]] = {BENCH_CASE: set(), ENVIRONMENT: set()}

    def run(self, run: Row[Any]) -> None:
        key, begun = _find_id(self._here, run, harmless_id(run.id))
        if not begun:
            self._here.execute(insert(RUN), {**_without(run._mapping, "number"), "id": key})
        added = sum(self._records(rows, key) for rows in self._missing(run.id, key))
        add_notes(self._here, key, notes_of(self._there, run.id))
        self._done.records += added
        (self._done.new if not begun else self._done.completed if added else self._done.there).append(key)
        if key != run.id:
            self._done.renamed[run.id] = key

    def _missing(self, theirs: str, ours: str) -> Iterator[Sequence[Row[Any]]]:
        have = set(self._here.execute(select(RECORD.c.task_id).where(RECORD.c.run_id == ours)).scalars())
        which = select(RECORD.c.number, RECORD.c.task_id).where(RECORD.c.run_id == theirs).order_by(RECORD.c.number)
        wanted = [number for number, task in self._there.execute(which) if task not in have]
        for start in range(0, len(wanted), _AT_ONCE):
            some = RECORD.c.number.in_(wanted[start : start + _AT_ONCE])
            yield self._there.execute(select(RECORD).where(some).order_by(RECORD.c.number)).all()

    def _records(self, rows: Sequence[Row[Any]], run_id: str) -> int:
        self._copy(BENCH_CASE, {row.case_id for row in rows})
        self._copy(ENVIRONMENT, {row.environment_id for row in rows})
        return self._ours.add_records(self._here, [{**self._packed(row), "run_id": run_id} for row in rows])

    def _packed(self, row: Row[Any]) -> dict[str, Any]:
        """Return the columns of a record. If its body is text, its writer began before that store was upgraded, and
        wrote neither case nor figures."""
        found = _clean(row._mapping)
        if isinstance(row.body, str):
            record = from_row(row.body, row.samples)
            self._ours.add_cases(self._here, [case_row(record.task.case)])
            found |= {name: value for name, value in to_row(row.run_id, record).items() if name in PACKED}
        return found

    def _copy(self, table: Table, ids: set[str]) -> None:
        """Copy rows in the order of their ids, as all writers do: another order could cause a deadlock."""
        wanted = ids - self._copied[table]
        query = select(table).where(table.c.id.in_(wanted)).order_by(table.c.id)
        if rows := [_clean(row) for row in self._there.execute(query).mappings()]:
            self._here.execute(self._ours.database.insert_new(table), sorted(rows, key=lambda row: str(row["id"])))
        self._copied[table] |= wanted


def harmless_id(theirs: str) -> str:
    """Return an id that is safe as a file name and in messages. An unsafe id of another store is replaced by a hash,
    which is the same when it is merged again."""
    if _ID.fullmatch(theirs):
        return theirs
    return f"renamed-{hashlib.sha256(theirs.encode(errors='surrogatepass')).hexdigest()[:16]}"


def _find_id(here: Connection, run: Row[Any], wanted: str) -> tuple[str, bool]:
    """Return the id of this run in the store, and whether it is there already."""
    for number in count(1):
        key = wanted if number == 1 else f"{wanted[:_LONGEST]}-{number}"
        found = here.execute(select(*_SAME).where(RUN.c.id == key)).one_or_none()
        if found is None or tuple(found) == tuple(run._mapping[column.name] for column in _SAME):
            return key, found is not None
    raise AssertionError("there is always another number")


def add_notes(here: Connection, run_id: str, notes: list[dict[str, Any]]) -> None:
    """Add the notes that are newer than those of the store."""
    last = {note["kind"]: note["noted"] for note in notes_of(here, run_id)}
    if newer := [note for note in notes if note["noted"] > last.get(note["kind"], "")]:
        here.execute(insert(RUN_NOTE), [{**note, "run_id": run_id} for note in newer])


def notes_of(connection: Connection, run_id: str) -> list[dict[str, Any]]:
    query = select(RUN_NOTE).where(RUN_NOTE.c.run_id == run_id).order_by(RUN_NOTE.c.number)
    return [_without(row, "number") for row in connection.execute(query).mappings()]


def add_findings(here: Connection, known: list[dict[str, Any]]) -> int:
    """Add the findings that are not there yet, and return how many."""
    columns = [column for column in FINDING.c if column.name != "number"]
    have = {tuple(row) for row in here.execute(select(*columns))}
    missing = [row for row in known if tuple(row[column.name] for column in columns) not in have]
    if missing:
        here.execute(insert(FINDING), missing)
    return len(missing)


def _clean(row: Any) -> dict[str, Any]:
    """Return a row whose JSON views can read; stores of older versions did not check it."""
    return {key: storable_json(row[key]) if key in _JSON else row[key] for key in row if key != "number"}


def _without(row: Any, name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}
