"""The tables made, and those of older versions brought up to date, in one transaction each: all of it or nothing."""

from __future__ import annotations

from sqlalchemy import Connection, Row, select, text, update

from opmark.store.database import Database
from opmark.store.pack import case_row, to_row, with_samples
from opmark.store.tables import BENCH_CASE, META, METADATA, RECORD, RUN, VERSION
from opmark.store.views import create_views

_ADDED = ((RUN, ("session", "revision")), (RECORD, ("implementation", "threads", "process", "reason", "figures")))
"""Columns that the third version has and the ones before had not."""
_REDUNDANT = "record_run"
"""An index that another one begins with."""


def make_tables(database: Database) -> None:
    with database.engine.execution_options(writes=True).begin() as connection:
        database.lock(connection)
        if _version(connection, database) is None:
            METADATA.create_all(connection)
            connection.execute(database.insert_new(META), {"key": "version", "value": str(VERSION)})
            _make_views(connection)


def upgrade(database: Database) -> None:
    with database.engine.execution_options(writes=True).begin() as connection:
        database.lock(connection)
        if (_version(connection, database) or VERSION) < VERSION:  # another process may have been quicker
            _add_columns(connection)
            METADATA.create_all(connection)
            _pack_records(connection, database)
            connection.execute(text(f"DROP INDEX IF EXISTS {_REDUNDANT}"))
            _make_views(connection)
            connection.execute(update(META).where(META.c.key == "version").values(value=str(VERSION)))


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
    numbers = connection.execute(select(RECORD.c.number).order_by(RECORD.c.number)).scalars().all()
    for number in numbers:
        old = connection.execute(
            text("SELECT run_id, body, samples FROM record WHERE number = :number"), {"number": number}
        ).one()
        _pack_record(connection, database, number, old)


def _pack_record(connection: Connection, database: Database, number: int, old: Row[tuple[str, str, bytes]]) -> None:
    record = with_samples(old.body.encode(), old.samples)
    connection.execute(database.insert_new(BENCH_CASE), case_row(record.task.case))
    row = to_row(old.run_id, record)
    fresh = {name: row[name] for name in ("body", *_ADDED[1][1])}
    connection.execute(update(RECORD).where(RECORD.c.number == number).values(fresh))
