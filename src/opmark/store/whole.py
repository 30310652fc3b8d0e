"""Whole records, samples included, of one item: what its page needs, without reading all of a run."""

from __future__ import annotations

from sqlalchemy import select

from opmark.schema import Record
from opmark.schema.item import Item
from opmark.store.pack import from_row
from opmark.store.sql import SqlStore
from opmark.store.tables import RECORD


def records_behind(store: SqlStore, item: Item) -> list[Record]:
    """Those of all processes that an item joins, in the order written."""
    columns = {"run_id": item.run, "case_id": item.case, "backend": item.backend,
               "implementation": item.implementation, "threads": item.threads}  # fmt: skip
    query = select(RECORD.c.body, RECORD.c.samples).order_by(RECORD.c.number)
    query = query.where(*(RECORD.c[name] == value for name, value in columns.items()))
    with store.reading() as connection:
        found = [from_row(body, samples) for body, samples in connection.execute(query)]
    first = next((record.task.across_processes for record in found if record.task.id == item.key), None)
    return [record for record in found if record.task.across_processes == first]
