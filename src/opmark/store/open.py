"""Opening a store, in a file or on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import finalize

from sqlalchemy import event

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


def open_read_only(told: Told = None) -> SqlStore:
    """A store that nothing can be written to, whatever happens: SQLite sees to it. Its connections are closed with the
    last reference to it, since others may still be reading when another store takes its place."""
    store = open_sql(told)
    engine = store.database.engine
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA query_only=ON")

        engine.dispose()  # connections that were opened before
    finalize(store, store.database.close)
    return store
