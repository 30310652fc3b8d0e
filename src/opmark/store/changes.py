"""Track how far a store was read, and what was written since. Indexes tell, so that records need not be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, func, select

from opmark.store.record_codec import plain_body
from opmark.store.sql import SqlStore
from opmark.store.tables import BENCH_CASE, FINDING, RECORD, RUN

_AT_ONCE = 500
"""Values in one statement, which databases limit."""
LATE = 10_000
"""If two processes write to a server at once, a record may become visible this many numbers late."""
_Value = TypeVar("_Value")


class RecordPosition(NamedTuple):
    """A record and its number. The other fields tell whether SQLite has reused the number of a removed record."""

    number: int = 0
    run: str = ""
    task: str = ""
    started: str = ""


class ReadMark(NamedTuple):
    """State of a run in the store. While it is unchanged, everything that was read of the run is still valid."""

    records: int = 0
    begun: int = 0
    """Number of the run itself: usually another one if the run was removed and sent again."""
    last: RecordPosition = RecordPosition()
    findings: int = 0
    """Number of the last finding about a machine; 0 if the mark ignores findings."""


_POSITION = (RECORD.c.number, RECORD.c.run_id, RECORD.c.task_id, RECORD.c.started)


def read_marks(store: SqlStore, run_ids: Sequence[str]) -> dict[str, ReadMark]:
    """Return the marks of runs by id, except of runs without records."""
    counts: list[tuple[int, int]] = []
    with store.reading() as connection:
        for some in _parts(run_ids):
            run = store.run_column(connection, *some)
            query = select(func.count(), func.max(RECORD.c.number)).where(run.in_(some)).group_by(run)
            counts += [(count, newest) for count, newest in connection.execute(query)]
    return marks_at(store, counts)


def marks_at(store: SqlStore, counts: Sequence[tuple[int, int]]) -> dict[str, ReadMark]:
    """Return the marks of runs by id. `counts` has for each run its number of records and the number of the last
    one."""
    records = {newest: count for count, newest in counts}
    found: dict[str, ReadMark] = {}
    with store.reading() as connection:
        for some in _parts(list(records)):
            query = select(RUN.c.number.label("begun"), *_POSITION).join(RUN, RUN.c.id == RECORD.c.run_id)
            for begun, *position in connection.execute(query.where(RECORD.c.number.in_(some))):
                last = RecordPosition(*position)
                found[last.run] = ReadMark(records[last.number], begun, last)
    return found


def runs_written_since(store: SqlStore, since: RecordPosition) -> tuple[RecordPosition, set[str] | None]:
    """Return the last record of the store, and the runs that were written since that position; None instead of the runs
    if that is unknown, because numbers of removed records were reused."""
    with store.reading() as connection:
        last = _last_position(connection)
        if last == since:
            return last, set()
        if _position_at(connection, since.number) != since:
            return last, None
        # Without DISTINCT: SQLite would walk an index of all records for it, instead of the few behind the number.
        new = connection.execute(select(RECORD.c.run_id).where(RECORD.c.number > since.number)).scalars()
        return last, set(new)


def last_position(store: SqlStore) -> RecordPosition:
    """Return the position of the last record; an empty position if there is none."""
    with store.reading() as connection:
        return _last_position(connection)


def still_there(store: SqlStore, position: RecordPosition) -> bool:
    """Return whether the same record still has that number."""
    with store.reading() as connection:
        return _position_at(connection, position.number) == position


def last_finding(store: SqlStore) -> int:
    """Return the number of the last finding about a machine; 0 if there is none."""
    with store.reading() as connection:
        return connection.execute(select(func.max(FINDING.c.number))).scalar() or 0


def count_cases(store: SqlStore) -> int:
    with store.reading() as connection:
        return connection.execute(select(func.count()).select_from(BENCH_CASE)).scalar() or 0


def case_ids(store: SqlStore) -> list[str]:
    with store.reading() as connection:
        return list(connection.execute(select(BENCH_CASE.c.id)).scalars())


class StatusCounts(NamedTuple):
    statuses: dict[str, int]
    """Number of records by status."""
    newest: str
    """Start of the last record; empty if there is none."""


def count_statuses(store: SqlStore, run_id: str) -> StatusCounts:
    """Count records by status from an index; only the last record of each status is read."""
    query = select(RECORD.c.status, func.count(), func.max(RECORD.c.number)).group_by(RECORD.c.status)
    with store.reading() as connection:
        query = query.where(store.run_column(connection, run_id) == run_id)
        rows = connection.execute(query).all()
        last = select(func.max(RECORD.c.started)).where(RECORD.c.number.in_([number for *_, number in rows]))
        return StatusCounts({status: count for status, count, _ in rows}, connection.execute(last).scalar() or "")


class LatestTry(NamedTuple):
    """The last record of an operator on a backend in a phase that was not skipped."""

    number: int
    op: str
    backend: str
    phase: str
    run: str
    status: str
    reason: str
    checked: bool
    """Whether its result was verified, in full or at a smaller size."""


def latest_tries(store: SqlStore, since: RecordPosition) -> tuple[RecordPosition, list[LatestTry], bool]:
    """Return the last record of the store, the last tries since that position, and whether these are all tries of the
    store, because the number of that position was reused and older results are no longer valid."""
    with store.reading() as connection:
        last = _last_position(connection)
        anew = _position_at(connection, since.number) != since
        known = 0 if anew else since.number
        after = max(0, known - (LATE if store.database.shared else 0))
        numbers = _last_tries(connection, after) if last.number > after else {}
    return last, _tries(store, numbers), anew


_Kind = tuple[str, str, str]
"""Operator, backend and phase."""


def _last_tries(connection: Connection, after: int) -> dict[_Kind, int]:
    """Return the number of the last record of each kind that was not skipped. An index gives the last record of each
    case on each backend; if that was skipped, earlier ones are read."""
    # Recent records are few and read in order: with GROUP BY, SQLite would walk the index of all records.
    by, number = (RECORD.c.case_id, RECORD.c.backend), RECORD.c.number
    since = select(*by, number).where(number > after).order_by(number)
    query = since if after else select(*by, func.max(number)).group_by(*by)
    last = {(case, backend): newest for case, backend, newest in connection.execute(query)}
    known = select(BENCH_CASE.c.id, BENCH_CASE.c.op, BENCH_CASE.c.phase)
    cases = {key: (op, phase) for key, op, phase in connection.execute(known)} if last else {}
    found: dict[_Kind, list[tuple[int, str]]] = {}
    for (case, backend), newest in last.items():
        if case not in cases:  # written by a process that began before an upgrade
            one = select(RECORD.c.op, RECORD.c.phase).where(RECORD.c.number == newest)
            op, phase = connection.execute(one).one()
            cases[case] = (op, phase)
        op, phase = cases[case]
        found.setdefault((op, backend, phase), []).append((newest, case))
    return {kind: tried for kind, some in found.items() if (tried := _last_not_skipped(connection, kind, some, after))}


def _last_not_skipped(connection: Connection, kind: _Kind, some: list[tuple[int, str]], after: int) -> int:
    """Return the number of the last record that was not skipped, or 0. `some` has the last number of each case."""
    newest = max(some)[0]
    status = connection.execute(select(RECORD.c.status).where(RECORD.c.number == newest)).scalar_one()
    if status != "skipped":
        return newest
    query = select(func.max(RECORD.c.number)).where(RECORD.c.backend == kind[1], RECORD.c.status != "skipped")
    query = query.where(RECORD.c.number > after)
    parts = _parts([case for _, case in some])
    return max(connection.execute(query.where(RECORD.c.case_id.in_(part))).scalar() or 0 for part in parts)


class _Verification(Struct, frozen=True):
    checked: str


class _Body(Struct, frozen=True):
    verification: _Verification | None = None


_body = msgspec.json.Decoder(_Body)


def _tries(store: SqlStore, numbers: dict[_Kind, int]) -> list[LatestTry]:
    kinds = {number: kind for kind, number in numbers.items()}
    columns = (RECORD.c.number, RECORD.c.run_id, RECORD.c.task_id, RECORD.c.status, RECORD.c.reason, RECORD.c.body)
    found: list[LatestTry] = []

    def latest_try(row: Any) -> LatestTry:
        check = _body.decode(plain_body(row.body)).verification
        checked = check is not None and check.checked != "none"
        return LatestTry(row.number, *kinds[row.number], row.run_id, row.status, row.reason, checked)

    for part in _parts(list(kinds)):
        query = select(*columns).where(RECORD.c.number.in_(part))
        with store.reading() as connection:
            found += store.decode_rows(connection.execute(query), latest_try)
    return found


def _parts(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]


def _last_position(connection: Connection) -> RecordPosition:
    row = connection.execute(select(*_POSITION).order_by(RECORD.c.number.desc()).limit(1)).first()
    return RecordPosition(*row) if row else RecordPosition()


def _position_at(connection: Connection, number: int) -> RecordPosition:
    """Return the position of the record with this number; an empty position if there is none."""
    row = connection.execute(select(*_POSITION).where(RECORD.c.number == number)).first()
    return RecordPosition(*row) if row else RecordPosition()
