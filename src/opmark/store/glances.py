"""Records at a glance: everything but their samples, read for thousands of cases at once.

A record is decoded in part, and its medians are those that were stored beside the samples (`store.figures`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from sqlalchemy import select

from opmark.schema import Cost
from opmark.schema.record import Status
from opmark.store.pack import decoding, plain_body
from opmark.store.sql import SqlStore
from opmark.store.tables import RECORD


class Settings(Struct, frozen=True):
    effort: str
    mode: str = ""
    seed: int = 0


class _Case(Struct, frozen=True):
    tags: tuple[str, ...] = ()


class _Task(Struct, frozen=True):
    case: _Case
    settings: Settings


class _Memory(Struct, frozen=True):
    peak: int


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


def glances(store: SqlStore, run_id: str, *, after: int = 0, tasks: Sequence[str] | None = None) -> list[Glance]:
    """Of a run, in the order written; those behind the number `after`, of these tasks if any are named."""
    query = select(*_COLUMNS, RECORD.c.figures, RECORD.c.body).order_by(RECORD.c.number)
    query = query.where(RECORD.c.run_id == run_id, RECORD.c.number > after)
    if tasks is not None:
        query = query.where(RECORD.c.task_id.in_(list(tasks)))
    with store.reading() as connection, decoding():
        found = connection.execute(query)
        return [Glance._make((*who, _rows.decode(rows), _body.decode(plain_body(body)))) for *who, rows, body in found]
