"""Read records: whole, as heads without samples, or as outlines of their columns.

A page shows thousands of cases and the samples of one. The medians of a head are those that are stored beside the
samples (`Store.figures`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from sqlalchemy import Select, literal, select

from opmark.schema import Record
from opmark.schema.record import FAILED, Status, StoredFigure
from opmark.schema.record_head import HeadBody, RecordHead
from opmark.store.record_codec import from_row, plain_body, read_figures
from opmark.store.sql import SqlStore
from opmark.store.tables import BENCH_CASE, RECORD

_AT_ONCE = 500
"""Values in one statement, which databases limit."""

_HEAD = (RECORD.c.number, RECORD.c.run_id, RECORD.c.task_id, RECORD.c.case_id, RECORD.c.op, RECORD.c.phase,
         RECORD.c.backend, RECORD.c.implementation, RECORD.c.threads, RECORD.c.process, RECORD.c.status,
         RECORD.c.reason, RECORD.c.environment_id, RECORD.c.started, RECORD.c.duration)  # fmt: skip
_body = msgspec.json.Decoder(HeadBody)


def record_heads(
    store: SqlStore,
    run_id: str,
    *,
    after: int = 0,
    until: int | None = None,
    tasks: Sequence[str] | None = None,
    cases: Sequence[str] | None = None,
    whole: bool = False,
) -> list[RecordHead]:
    """Return the heads of a run's records with numbers above `after` and up to `until`, in the order written; with
    `tasks` or `cases`, only theirs. `whole`: each head has its whole record as the body, samples included."""
    columns = (RECORD.c.figures, RECORD.c.body, *((RECORD.c.samples,) if whole else ()))
    query = select(*_HEAD, *columns).order_by(RECORD.c.number)
    with store.reading() as connection:
        run = store.run_column(connection, run_id)
    query = query.where(run == run_id, RECORD.c.number > after)
    if until is not None:
        query = query.where(RECORD.c.number <= until)
    column, values = (RECORD.c.task_id, tasks) if cases is None else (RECORD.c.case_id, cases)
    if values is None:
        return _read_heads(store, query)
    parts = [values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE)]
    found = [head for part in parts for head in _read_heads(store, query.where(column.in_(part)))]
    return sorted(found, key=lambda head: head.number)


def _read_heads(store: SqlStore, query: Select[Any]) -> list[RecordHead]:
    body_of, count = _body.decode, len(_HEAD)

    def head(row: Any) -> RecordHead:
        figures, *body = row[count:]
        return RecordHead._make((
            *row[:count], read_figures(figures), from_row(*body) if body[1:] else body_of(plain_body(*body)),
        ))  # fmt: skip

    with store.reading() as connection:
        return store.decode_rows(connection.execute(query).all(), head)


class RecordOutline(NamedTuple):
    """The columns of a record: quick to read, and enough to choose among thousands of records."""

    task: str
    case: str
    op: str
    phase: str
    backend: str
    implementation: str
    threads: int
    status: Status
    reason: str
    environment: str
    started: str
    figures: Sequence[StoredFigure]
    dtype: str

    @property
    def failed(self) -> bool:
        return self.status in FAILED


class _Params(Struct, frozen=True):
    dtype: Any = ""


_params = msgspec.json.Decoder(_Params)
_OUTLINE = (RECORD.c.task_id, RECORD.c.case_id, RECORD.c.op, RECORD.c.phase, RECORD.c.backend,
            RECORD.c.implementation, RECORD.c.threads, RECORD.c.status, RECORD.c.reason, RECORD.c.environment_id,
            RECORD.c.started)  # fmt: skip


def record_outlines(store: SqlStore, run_id: str, *, figures: bool = False) -> list[RecordOutline]:
    """Return the outlines of a run's records in the order written. `figures`: read their figures, too."""
    numbers = RECORD.c.figures if figures else literal("[]")
    query = select(*_OUTLINE, numbers, BENCH_CASE.c.params, RECORD.c.run_id).join(
        BENCH_CASE, BENCH_CASE.c.id == RECORD.c.case_id
    )
    query = query.order_by(RECORD.c.number)
    params_of, count = _params.decode, len(_OUTLINE)

    def outline(row: Any) -> RecordOutline:
        return RecordOutline._make((*row[:count], read_figures(row[count]), str(params_of(row.params).dtype)))

    with store.reading() as connection:
        query = query.where(store.run_column(connection, run_id) == run_id)
        return store.decode_rows(connection.execute(query).all(), outline)


def records_of_task(store: SqlStore, run_id: str, task_id: str) -> list[Record]:
    """Return the whole records of a task in all of its processes, in the order written."""
    who = (RECORD.c.case_id, RECORD.c.backend, RECORD.c.implementation, RECORD.c.threads)
    with store.reading() as connection:
        of_run = store.run_column(connection, run_id) == run_id
        same = connection.execute(select(*who).where(of_run, RECORD.c.task_id == task_id)).first()
        if same is None:
            return []
        query = select(RECORD.c.run_id, RECORD.c.task_id, RECORD.c.body, RECORD.c.samples).order_by(RECORD.c.number)
        query = query.where(of_run, *(column == value for column, value in zip(who, same, strict=True)))
        found = store.decode_rows(connection.execute(query), lambda row: from_row(row.body, row.samples))
    wanted = [record.task.across_processes for record in found if record.task.id == task_id]
    return [record for record in found if record.task.across_processes in wanted]


class TaskPlace(NamedTuple):
    """The columns that distinguish tasks of one case."""

    run: str
    backend: str
    implementation: str
    threads: int


def first_tasks(store: SqlStore, case_id: str) -> dict[TaskPlace, str]:
    """Return the id of the first task of a case in each run and way, which is the key of its row."""
    columns = (RECORD.c.run_id, RECORD.c.backend, RECORD.c.implementation, RECORD.c.threads, RECORD.c.task_id)
    query = select(*columns).where(RECORD.c.case_id == case_id).order_by(RECORD.c.number)
    found: dict[TaskPlace, str] = {}
    with store.reading() as connection:
        for *place, task in connection.execute(query):
            found.setdefault(TaskPlace(*place), task)
    return found
