"""The tables made, and those of older versions brought up to date, in one transaction each: all of it or nothing."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, bindparam, inspect, select, text, update

from opmark.store.database import Database
from opmark.store.old import old_record
from opmark.store.pack import case_row, to_row
from opmark.store.tables import BENCH_CASE, IDENTITY, META, METADATA, OUTCOMES, RECORD, RUN, VERSION
from opmark.store.views import create_views, refuse_taken

_ADDED = ((RUN, ("session", "revision")), (RECORD, ("implementation", "threads", "process", "reason", "figures")))
"""Columns that the third version has and the ones before had not."""
PACKED = ("body", "samples", *_ADDED[1][1])
"""Columns of a record that an older version left out, or wrote otherwise."""
_REDUNDANT = "record_run"
"""An index that another one begins with."""

_AT_ONCE = 500
_SOME = "SELECT number, run_id, body, samples FROM record WHERE number > :last ORDER BY number LIMIT :count"


def make_tables(database: Database) -> None:
    with database.engine.execution_options(writes=True).begin() as connection:
        database.lock(connection)
        if _version(connection, database) is None:
            if database.shared:
                refuse_taken(connection, database.name, METADATA.tables)
            METADATA.create_all(connection)
            connection.execute(database.insert_new(META), {"key": "version", "value": str(VERSION)})
            _make_views(connection)
        _name_it(connection, database)


def name_it(database: Database) -> None:
    """For a store of this version that was made before stores had names of their own."""
    with database.engine.execution_options(writes=True).begin() as connection:
        _name_it(connection, database)


def _name_it(connection: Connection, database: Database) -> None:
    connection.execute(database.insert_new(META), {"key": IDENTITY, "value": uuid4().hex})


def add_index(database: Database) -> None:
    """For a store of this version that was made before there was this index. On a server only who owns the table can
    make it; for others everything works, and counting takes longer."""
    with database.engine.connect() as connection:
        missing = not _has_index(connection) and database.owns(connection, RECORD)
    if missing:
        with database.engine.execution_options(writes=True).begin() as connection:
            database.lock(connection)
            OUTCOMES.create(connection, checkfirst=True)  # another process may have been quicker


def _has_index(connection: Connection) -> bool:
    return any(index["name"] == OUTCOMES.name for index in inspect(connection).get_indexes(RECORD.name))


def upgrade(database: Database) -> None:
    with database.engine.execution_options(writes=True).begin() as connection:
        database.lock(connection)
        if (_version(connection, database) or VERSION) < VERSION:  # another process may have been quicker
            _add_columns(connection)
            METADATA.create_all(connection)
            _pack_records(connection, database)
            connection.execute(text(f"DROP INDEX IF EXISTS {_REDUNDANT}"))
            OUTCOMES.create(connection, checkfirst=True)
            _make_views(connection)
            connection.execute(update(META).where(META.c.key == "version").values(value=str(VERSION)))
            _name_it(connection, database)


def _version(connection: Connection, database: Database) -> int | None:
    """None: there are no tables yet."""
    if not database.engine.dialect.has_table(connection, META.name):
        return None
    return int(connection.execute(select(META.c.value).where(META.c.key == "version")).scalar_one())


def _make_views(connection: Connection) -> None:
    for statement in create_views(connection.dialect.name):
        connection.execute(text(statement))


def _add_columns(connection: Connection) -> None:
    for table, names in _ADDED:
        for name in names:
            column = table.c[name]
            kind = column.type.compile(connection.dialect)
            default = column.server_default.arg  # type: ignore[union-attr]
            connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {name} {kind} NOT NULL DEFAULT '{default}'"))


def _pack_records(connection: Connection, database: Database) -> None:
    """Bodies were texts; their figures, and the columns that people ask for, are taken from them."""
    last = 0
    while some := connection.execute(text(_SOME), {"last": last, "count": _AT_ONCE}).all():
        records = [(row, old_record(row.body, row.samples)) for row in some]
        cases = {record.task.case.id: record.task.case for _, record in records}
        connection.execute(database.insert_new(BENCH_CASE), [case_row(case) for case in cases.values()])
        packed = [{**to_row(row.run_id, record), "this": row.number} for row, record in records]
        changed: dict[str, Any] = {name: bindparam(name) for name in PACKED}
        connection.execute(
            update(RECORD).where(RECORD.c.number == bindparam("this")).values(changed),
            [{name: row[name] for name in ("this", *changed)} for row in packed],
        )
        last = some[-1].number
