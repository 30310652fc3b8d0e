"""Merge the runs of one store into another, each in one transaction. Merging again adds nothing.

A store may come from anybody. What is copied is checked as an upload is: only rows within the limits are read, their
content is decoded, and columns that repeat it are made anew. A row that is refused costs itself and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace
from sqlalchemy import ColumnElement, Connection, LargeBinary, String, Table, func, insert, literal_column, select

from opmark.errors import UserError
from opmark.schema import Environment, Run
from opmark.schema.machine import MachineFinding
from opmark.schema.tuned import TunedEntry
from opmark.schema.upload import Note
from opmark.store.limits import (
    LIMITS,
    LimitExceeded,
    Limits,
    check_case,
    check_finding,
    check_record,
    check_run,
    check_size,
    harmless_id,
)
from opmark.store.protocol import Store
from opmark.store.record_codec import (
    DECODING_ERRORS,
    LARGEST,
    case_row,
    from_row,
    plain_body,
    storable_json,
    to_row,
)
from opmark.store.sql import SqlStore, run_row, tuned_row
from opmark.store.tables import ENVIRONMENT, FINDING, RECORD, RUN, RUN_NOTE, TUNED_ENTRY
from opmark.units import count_bytes

_AT_ONCE, _BYTES_AT_ONCE = 200, 32 << 20
"""Records in memory at once, and their bytes: they may have thousands of samples."""
_LONGEST = 42
_CONTENT_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
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
    tuned: int = 0
    """Results of tunings that were new."""
    refused: list[str] = field(default_factory=list)
    """What was left out because it is damaged or beyond the limits, and why."""


def merge(into: Store, source: Store, limits: Limits | None = LIMITS) -> Merged:
    """Copy what `source` has and `into` lacks. After an error it can be repeated. Without limits, for a store that this
    user's opmark wrote, only damage is refused."""
    ours, theirs = _sql(into), _sql(source)
    done = Merged()
    with theirs.reading() as there:
        reader = _Source(theirs, there, limits, done)
        for number in reader.rows_within(RUN, "run"):
            try:
                run = reader.run(number)
            except DECODING_ERRORS as error:
                done.refused.append(f"run {number}: {error}")
                continue
            with ours.writing() as here:
                _merge_run(ours, here, reader, run)
        known, tuned = list(reader.findings()), list(reader.tuned())
    with ours.writing() as here:
        done.findings = add_findings(here, known)
        done.tuned = ours.add_tuned_rows(here, tuned)
    return done


def _sql(store: Store) -> SqlStore:
    inner = getattr(store, "store", store)
    if not isinstance(inner, SqlStore):
        raise UserError("merge: a store in memory has no place among these", "name a file or a server with --db")
    return inner


@dataclass
class _SourceRun:
    id: str
    """Its id in the other store, which may be anything."""
    run: Run
    notes: list[dict[str, Any]]


class _Source:
    """Reads a store that may be damaged or hostile."""

    def __init__(self, store: SqlStore, connection: Connection, limits: Limits | None, done: Merged) -> None:
        self._store, self._connection, self._limits, self._done = store, connection, limits, done
        self._largest = limits.line if limits else LARGEST
        self._environments: dict[str, dict[str, Any] | None] = {}

    def rows_within(self, table: Table, what: str, *where: ColumnElement[bool]) -> dict[int, int]:
        """Return the numbers and the sizes of rows that are not too large, without reading them."""
        found = {}
        query = select(table.c.number, self._size(table)).where(*where).order_by(table.c.number)
        for number, size in self._connection.execute(query):
            if size > self._largest:
                limit = count_bytes(self._largest)
                self._done.refused.append(f"{what} {number}: expected at most {limit}, got {count_bytes(size)}")
            else:
                found[number] = size
        return found

    def _size(self, table: Table) -> Any:
        """Return an expression for the size of a row in bytes or characters. A column of SQLite may hold anything,
        whatever its type says, and `length` of a text ends at a NUL there."""
        if self._connection.dialect.name == "sqlite":
            sizes = [
                f"CASE typeof({column}) WHEN 'blob' THEN length({column}) "
                f"ELSE coalesce(length(CAST({column} AS BLOB)), 0) END"
                for column in table.c
            ]
            return literal_column(" + ".join(sizes))
        texts = [column for column in table.c if isinstance(column.type, String | LargeBinary)]
        return sum((func.coalesce(func.length(column), 0) for column in texts), start=literal_column("0"))

    def run(self, number: int) -> _SourceRun:
        row = self._connection.execute(select(RUN).where(RUN.c.number == number)).mappings().one()
        theirs = msgspec.convert(_without(row, "number"), Run)
        within = self.rows_within(RUN_NOTE, "note", RUN_NOTE.c.run_id == theirs.id)
        most = self._limits.notes if self._limits else len(within)
        if len(within) > most:
            raise LimitExceeded(f"expected at most {most} notes, got {len(within)}")
        notes = [_without(note, "run_id") for note in notes_of(self._connection, theirs.id, list(within))]
        run = replace(theirs, id=harmless_id(theirs.id))
        if self._limits:
            check_size([msgspec.to_builtins(run), *notes], self._limits)
            check_run(run, tuple(msgspec.convert(note, Note) for note in notes), self._limits)
        return _SourceRun(theirs.id, run, notes)

    def records(self, run_id: str, have: set[str]) -> Iterator[list[dict[str, Any]]]:
        """Yield rows of the table `record` in groups, without those of the tasks `have`."""
        short = func.substr(RECORD.c.task_id, 1, _LONGEST)
        of_run = self._store.run_column(self._connection, run_id) == run_id
        tasks = select(RECORD.c.number, short).where(of_run)
        known = {number for number, task in self._connection.execute(tasks) if task in have}
        sizes = self.rows_within(RECORD, "record", of_run)
        for some in _groups([(number, size) for number, size in sizes.items() if number not in known]):
            rows = []
            query = select(RECORD).where(RECORD.c.number.in_(some)).order_by(RECORD.c.number)
            for row in self._connection.execute(query):
                try:
                    rows.append(self._record(row))
                except DECODING_ERRORS as error:
                    self._done.refused.append(f"record {row.number}: {error}")
            if rows:
                yield rows

    def _record(self, row: Any) -> dict[str, Any]:
        """Return the columns of a record, made from its content. Its body stays as it is, because a newer version may
        have written more into it; one that is text is of a writer that began before its store was upgraded."""
        if self._limits:
            check_size(msgspec.json.decode(plain_body(row.body, self._largest)), self._limits)
        record = from_row(row.body, row.samples, self._largest)
        case = record.task.case
        check_case(case)
        _check_id("task", row.task_id)  # older versions made other ids of the same content
        if self._limits:
            check_record(record, self._limits)
        if record.environment:
            self._check_environment(record.environment)
        packed = isinstance(row.body, bytes)
        as_it_is = {"body": row.body, "samples": row.samples} if packed else {}
        return {**to_row(row.run_id, record), "task_id": row.task_id, **as_it_is, "case": case_row(case)}

    def _check_environment(self, key: str) -> None:
        _check_id("environment", key)
        if key not in self._environments:
            self._environments[key] = self._read_environment(key)

    def _read_environment(self, key: str) -> dict[str, Any] | None:
        """Return a row of the table `environment`; None if there is none."""
        which = ENVIRONMENT.c.id == key
        size = self._connection.execute(select(self._size(ENVIRONMENT)).where(which)).scalar()
        if size is None:
            return None
        if size > self._largest:
            raise LimitExceeded(f"environment {key}: expected at most {count_bytes(self._largest)}")
        facts = self._connection.execute(select(ENVIRONMENT.c.facts).where(which)).scalar_one()
        decoded = msgspec.json.decode(facts, type=dict[str, Any])
        if self._limits:
            check_size(decoded, self._limits)
            if (same := Environment.of(decoded)).id != key:
                raise LimitExceeded(f"environment {key}: its content has the id {same.id}")
        return {"id": key, "facts": storable_json(facts)}

    def environments(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the environments of records, in the order of their ids."""
        wanted = sorted({row["environment_id"] for row in rows})
        return [found for key in wanted if (found := self._environments.get(key))]

    def findings(self) -> Iterator[dict[str, Any]]:
        for number in self.rows_within(FINDING, "finding"):
            row = self._connection.execute(select(FINDING).where(FINDING.c.number == number)).mappings().one()
            try:
                body = msgspec.json.decode(row["body"])
                if self._limits:
                    check_size(body, self._limits)
                    check_finding(msgspec.convert({**_without(row, "number"), "body": body}, MachineFinding))
            except DECODING_ERRORS as error:
                self._done.refused.append(f"finding {number}: {error}")
                continue
            yield _without(row, "number")

    def tuned(self) -> Iterator[dict[str, Any]]:
        for number in self.rows_within(TUNED_ENTRY, "result of a tuning"):
            body = self._connection.execute(select(TUNED_ENTRY.c.body).where(TUNED_ENTRY.c.number == number))
            try:
                text = body.scalar_one()
                if self._limits:
                    check_size(msgspec.json.decode(text), self._limits)
                yield tuned_row(msgspec.json.decode(text, type=TunedEntry))
            except DECODING_ERRORS as error:
                self._done.refused.append(f"result of a tuning {number}: {error}")

    def count(self, key: str, run: _SourceRun, *, begun: bool, added: int) -> None:
        done = self._done
        done.records += added
        (done.new if not begun else done.completed if added else done.there).append(key)
        if key != run.id:
            done.renamed[run.id] = key


def _check_id(name: str, key: str) -> None:
    if not _CONTENT_ID.fullmatch(key):
        raise LimitExceeded(f"{name}: expected 16 hexadecimal digits, got {key[:60]!a}")


def _groups(sizes: list[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield groups of numbers that may be in memory at once. `sizes` has numbers and sizes."""
    group: list[int] = []
    nbytes = 0
    for number, size in sizes:
        if group and (len(group) == _AT_ONCE or nbytes + size > _BYTES_AT_ONCE):
            yield group
            group, nbytes = [], 0
        group.append(number)
        nbytes += size
    if group:
        yield group


def _merge_run(ours: SqlStore, here: Connection, source: _Source, run: _SourceRun) -> None:
    key, begun = _find_id(here, run.run)
    if not begun:
        here.execute(insert(RUN), run_row(replace(run.run, id=key)))
    have = set(here.execute(select(RECORD.c.task_id).where(ours.run_column(here, key) == key)).scalars())
    added = 0
    for rows in source.records(run.id, have):
        # In the order of their ids, as all writers do: another order could cause a deadlock.
        cases = {case["id"]: case for case in [row.pop("case") for row in rows]}
        ours.add_cases(here, list(cases.values()))
        if environments := source.environments(rows):
            here.execute(ours.database.insert_new(ENVIRONMENT), environments)
        added += ours.add_records(here, [{**row, "run_id": key} for row in rows])
    add_notes(here, key, run.notes)
    source.count(key, run, begun=begun, added=added)


def _find_id(here: Connection, run: Run) -> tuple[str, bool]:
    """Return the id of this run in the store, and whether it is there already."""
    same = tuple(run_row(run)[column.name] for column in _SAME)
    for number in count(1):
        key = run.id if number == 1 else f"{run.id[:_LONGEST]}-{number}"
        found = here.execute(select(*_SAME).where(RUN.c.id == key)).one_or_none()
        if found is None or tuple(found) == same:
            return key, found is not None
    raise AssertionError("there is always another number")


def add_notes(here: Connection, run_id: str, notes: list[dict[str, Any]]) -> None:
    """Add the notes that are newer than those of the store."""
    last = {note["kind"]: note["noted"] for note in notes_of(here, run_id)}
    if newer := [note for note in notes if note["noted"] > last.get(note["kind"], "")]:
        here.execute(insert(RUN_NOTE), [{**note, "run_id": run_id} for note in newer])


def notes_of(connection: Connection, run_id: str, among: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """Return the notes of a run, oldest first; with `among`, only those with these numbers."""
    query = select(RUN_NOTE).where(RUN_NOTE.c.run_id == run_id).order_by(RUN_NOTE.c.number)
    if among is not None:
        query = query.where(RUN_NOTE.c.number.in_(among))
    return [_without(row, "number") for row in connection.execute(query).mappings()]


def add_findings(here: Connection, known: list[dict[str, Any]]) -> int:
    """Add the findings that are not there yet, and return how many."""
    columns = [column for column in FINDING.c if column.name != "number"]
    have = {tuple(row) for row in here.execute(select(*columns))}
    missing = [row for row in known if tuple(row[column.name] for column in columns) not in have]
    if missing:
        here.execute(insert(FINDING), missing)
    return len(missing)


def _without(row: Any, name: str) -> dict[str, Any]:
    return {str(key): value for key, value in row.items() if key != name}
