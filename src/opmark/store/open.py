"""A store, wherever it is."""

from __future__ import annotations

from pathlib import Path

from opmark.store.location import Told, address, server
from opmark.store.sql import SqlStore
from opmark.store.sqlite import Sqlite


def open_sql(told: Told = None, *, create: bool = False) -> SqlStore:
    where = address(told)
    if isinstance(where, Path):
        return SqlStore(Sqlite(where), create=create)
    checked = server(where)
    from opmark.store.postgresql import Postgresql

    return SqlStore(Postgresql(checked), create=create)
