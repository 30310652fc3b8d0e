"""Records at a glance: everything but their samples, read for thousands of cases at once.

A record is decoded in part, and its medians are those that were stored beside the samples (`store.figures`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from sqlalchemy import Select, literal, select

from opmark.schema import Cost, Settings
from opmark.schema.record import FAILED, Status
from opmark.store.pack import decoding, plain_body
from opmark.store.sql import SqlStore
from opmark.store.tables import BENCH_CASE, RECORD


class _Case(Struct, frozen=True):
    tags: tuple[str, ...] = ()


class _Task(Struct, frozen=True):
    case: _Case
    settings: Settings


class _Memory(Struct, frozen=True):
    peak: int
    source: str = ""
    resolution: int = 1


class _Compilation(Struct, frozen=True):
    cold: float


class _Verification(Struct, frozen=True):
    checked: str


class Body(Struct, frozen=True):
    """What of a record is not a column."""

    task: _Task
    cost: Cost | None = None
    memory: _Memory | None = None
    compilation: _Compilation | None = None
    verification: _Verification | None = None
    called: str = ""
    notes: tuple[str, ...] = ()


class Glance(NamedTuple):
    number: int
    """In the order written; it only ever grows."""
    run: str
    task: str
    case: str
    op: str
    phase: str
    backend: str
    implementation: str
    threads: int
    process: int
    status: Status
    reason: str
    environment: str
    started: str
    duration: float
    figures: list[list[Any]]
    """As `tables.RECORD` says."""
    body: Body


_COLUMNS = (RECORD.c.number, RECORD.c.run_id, RECORD.c.task_id, RECORD.c.case_id, RECORD.c.op, RECORD.c.phase,
            RECORD.c.backend, RECORD.c.implementation, RECORD.c.threads, RECORD.c.process, RECORD.c.status,
            RECORD.c.reason, RECORD.c.environment_id, RECORD.c.started, RECORD.c.duration)  # fmt: skip
_rows = msgspec.json.Decoder(list[list[Any]])
_body = msgspec.json.Decoder(Body)


_NUMBER_OF_VALUES = 500
"""In one statement: databases limit how many one takes."""


def glances(
    store: SqlStore,
    run_id: str,
    *,
    after: int = 0,
    until: int | None = None,
    tasks: Sequence[str] | None = None,
    cases: Sequence[str] | None = None,
) -> list[Glance]:
    """Of a run, in the order written; those behind the number `after` and not behind `until`, of these tasks or cases
    if any are named."""
    query = select(*_COLUMNS, RECORD.c.figures, RECORD.c.body).order_by(RECORD.c.number)
    query = query.where(RECORD.c.run_id == run_id, RECORD.c.number > after)
    if until is not None:
        query = query.where(RECORD.c.number <= until)
    column, values = (RECORD.c.task_id, tasks) if cases is None else (RECORD.c.case_id, cases)
    if values is None:
        return _read(store, query)
    parts = [values[start : start + _NUMBER_OF_VALUES] for start in range(0, len(values), _NUMBER_OF_VALUES)]
    found = [glance for part in parts for glance in _read(store, query.where(column.in_(part)))]
    return sorted(found, key=lambda glance: glance.number)


def _read(store: SqlStore, query: Select[Any]) -> list[Glance]:
    with store.reading() as connection, decoding():
        found = connection.execute(query).all()
        figures_of, body_of = _rows.decode, _body.decode
        return [Glance._make((*row[:-2], figures_of(row[-2]), body_of(plain_body(row[-1])))) for row in found]


class Outline(NamedTuple):
    """A record by its columns alone: enough to choose among thousands of them, and quickly read."""

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
    figures: list[list[Any]]
    dtype: str

    @property
    def failed(self) -> bool:
        return self.status in FAILED


class _Params(Struct, frozen=True):
    dtype: Any = ""


_params = msgspec.json.Decoder(_Params)


def outlines(store: SqlStore, run_id: str, *, figures: bool = False) -> list[Outline]:
    """Of a run, in the order written. `figures`: read those too."""
    numbers = RECORD.c.figures if figures else literal("[]")
    query = select(*_OUTLINE, numbers, BENCH_CASE.c.params).join(BENCH_CASE, BENCH_CASE.c.id == RECORD.c.case_id)
    query = query.where(RECORD.c.run_id == run_id).order_by(RECORD.c.number)
    with store.reading() as connection, decoding():
        found = connection.execute(query).all()
        figures_of, params_of = _rows.decode, _params.decode
        return [Outline._make((*row[:-2], figures_of(row[-2]), str(params_of(row[-1]).dtype))) for row in found]


_OUTLINE = (RECORD.c.task_id, RECORD.c.case_id, RECORD.c.op, RECORD.c.phase, RECORD.c.backend,
            RECORD.c.implementation, RECORD.c.threads, RECORD.c.status, RECORD.c.reason, RECORD.c.environment_id,
            RECORD.c.started)  # fmt: skip
