"""What became last of each operator on each backend: only what was written since it was last asked is read."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, func, select

from opmark.dashboard.marks import Place, last_place, place_at
from opmark.dashboard.reading import Reader
from opmark.dashboard.shown import brief
from opmark.store.pack import decoding, plain_body
from opmark.store.sql import SqlStore
from opmark.store.tables import BENCH_CASE, RECORD

_AT_ONCE = 500
LATE = 10_000
"""On a server a record may come so many numbers after those behind it: two that write at once."""


class Tried(NamedTuple):
    number: int
    """Of its record: the higher one is newer."""
    run: str
    status: str
    reason: str
    checked: bool
    """Whether its result was found right, at its own size or a smaller one."""


Found = Mapping[str, Mapping[str, Mapping[str, Tried]]]
"""By operator, backend and phase."""


class _Verification(Struct, frozen=True):
    checked: str


class _Body(Struct, frozen=True):
    verification: _Verification | None = None


_body = msgspec.json.Decoder(_Body)


class Newest:
    def __init__(self) -> None:
        self._lock = Lock()
        self._read = Place()
        """The record up to which they were looked at."""
        self._found: dict[str, dict[str, dict[str, Tried]]] = {}

    def tried(self, reader: Reader) -> Found:
        runs = {run.id for run in reader.runs()}
        with self._lock:
            if not self._runs() <= runs:  # some were pruned
                self._found, self._read = {}, Place()
            self._read_on(reader.store)
            return {op: {name: dict(phases) for name, phases in own.items()} for op, own in self._found.items()}

    def _runs(self) -> set[str]:
        return {one.run for own in self._found.values() for phases in own.values() for one in phases.values()}

    def _read_on(self, store: SqlStore) -> None:
        """A variant of a backend, or another interpreter, is the same backend. Skipped is not tried."""
        with store.reading() as connection:
            last = last_place(connection)
            if place_at(connection, self._read.number) != self._read:  # its number was given again
                self._found, self._read = {}, Place()
            after = max(0, self._read.number - (LATE if store.database.shared else 0))
            groups = _last_tries(connection, after) if last.number > after else {}
        known = _details(store, list(groups.values()))
        for (op, backend, phase), number in groups.items():
            name = backend.partition("@")[0].partition("/")[0]
            phases = self._found.setdefault(op, {}).setdefault(name, {})
            if number in known and (phase not in phases or phases[phase].number < number):
                phases[phase] = known[number]
        self._read = last


_Kind = tuple[str, str, str]
"""Operator, backend and phase."""


def _last_tries(connection: Connection, after: int) -> dict[_Kind, int]:
    """The number of the last record of each kind that was not skipped. Of all records an index tells the last one of
    each case on each backend; where that was skipped, those before it are looked at."""
    last = _last_numbers(connection, after)
    cases = {key: (op, phase) for key, op, phase in connection.execute(_CASES)} if last else {}
    found: dict[_Kind, list[tuple[int, str]]] = {}
    for (case, backend), number in last.items():
        op, phase = cases.get(case) or _said_by(connection, number)
        found.setdefault((op, backend, phase), []).append((number, case))
    return {kind: number for kind, some in found.items() if (number := _tried(connection, kind, some, after))}


def _last_numbers(connection: Connection, after: int) -> dict[tuple[str, str], int]:
    """By case and backend. What was written since is few and read as it lies: told to group it, SQLite would walk the
    index of all records."""
    by, number = (RECORD.c.case_id, RECORD.c.backend), RECORD.c.number
    since = select(*by, number).where(number > after).order_by(number)
    query = since if after else select(*by, func.max(number)).group_by(*by)
    return {(case, backend): newest for case, backend, newest in connection.execute(query)}


def _tried(connection: Connection, kind: _Kind, some: list[tuple[int, str]], after: int) -> int:
    """`some`: the last number of each case. 0 where all were skipped."""
    newest = max(some)[0]
    status = connection.execute(select(RECORD.c.status).where(RECORD.c.number == newest)).scalar_one()
    if status != "skipped":
        return newest
    query = select(func.max(RECORD.c.number)).where(RECORD.c.backend == kind[1], RECORD.c.status != "skipped")
    query = query.where(RECORD.c.number > after)
    ids = [case for _, case in some]
    parts = [ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE)]
    return max(connection.execute(query.where(RECORD.c.case_id.in_(part))).scalar() or 0 for part in parts)


def _said_by(connection: Connection, number: int) -> tuple[str, str]:
    """Operator and phase of a record whose case nobody stored: by a writer that began before an upgrade."""
    op, phase = connection.execute(select(RECORD.c.op, RECORD.c.phase).where(RECORD.c.number == number)).one()
    return op, phase


_CASES = select(BENCH_CASE.c.id, BENCH_CASE.c.op, BENCH_CASE.c.phase)


def _details(store: SqlStore, numbers: list[int]) -> dict[int, Tried]:
    columns = (RECORD.c.number, RECORD.c.run_id, RECORD.c.status, RECORD.c.reason, RECORD.c.body)
    found = {}
    for start in range(0, len(numbers), _AT_ONCE):
        query = select(*columns).where(RECORD.c.number.in_(numbers[start : start + _AT_ONCE]))
        with store.reading() as connection, decoding():
            for number, run, status, reason, body in connection.execute(query):
                check = _body.decode(plain_body(body)).verification
                found[number] = Tried(number, run, status, brief(reason), check is not None and check.checked != "none")
    return found
