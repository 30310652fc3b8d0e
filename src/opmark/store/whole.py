"""Whole records, samples included, of a few tasks: what pages of one case need, without reading all of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, select

from opmark.schema import Record
from opmark.schema.item import Item
from opmark.store.pack import from_row
from opmark.store.sql import SqlStore
from opmark.store.tables import RECORD


def records_of(store: SqlStore, run_id: str, tasks: Sequence[str]) -> list[Record]:
    """Of these tasks, by their ids, in the order written."""
    return _records(store, RECORD.c.run_id == run_id, RECORD.c.task_id.in_(list(tasks)))


def records_behind(store: SqlStore, item: Item) -> list[Record]:
    """Those of all processes that an item joins, in the order written."""
    columns = {"run_id": item.run, "case_id": item.case, "backend": item.backend,
               "implementation": item.implementation, "threads": item.threads}  # fmt: skip
    found = _records(store, *(RECORD.c[name] == value for name, value in columns.items()))
    first = next((record.task.across_processes for record in found if record.task.id == item.key), None)
    return [record for record in found if record.task.across_processes == first]


def _records(store: SqlStore, *conditions: ColumnElement[Any]) -> list[Record]:
    query = select(RECORD.c.body, RECORD.c.samples).where(*conditions).order_by(RECORD.c.number)
    with store.reading() as connection:
        return [from_row(body, samples) for body, samples in connection.execute(query)]
