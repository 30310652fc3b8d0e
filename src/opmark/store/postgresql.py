"""A store on a PostgreSQL server, for a team."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from opmark.errors import StoreError
from opmark.store.location import mask_password
from opmark.store.protocol import StoreUnreachable
from opmark.store.tables import METADATA

# A lost network is noticed within half a minute; by default it would take hours.
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_ALWAYS = {
    "client_encoding": "utf8",
    "prepare_threshold": None,  # a connection pooler may stand between here and the server
}
LOCK_SECONDS = 30.0
"""Seconds that a writer waits for a lock, unless the settings of the user say otherwise."""
_LOCK = 0x6F706D61
"""Key of the advisory lock for creating and upgrading tables: an arbitrary number that no other program uses."""
_AS_IN = "as in postgresql://user@host/database"

_HINTS = {
    "password authentication failed": "is the password right? PGPASSWORD or ~/.pgpass may have it",
    "no password supplied": "PGPASSWORD or ~/.pgpass may have it",
    'database ".*" does not exist': "`createdb NAME` makes a database; " + _AS_IN,
    "Connection refused": "is the server running, and is that its port?",
    "could not translate host name": "is the host's name right? " + _AS_IN,
    "permission denied": "the user must be allowed to create tables and views in the database",
    "lock timeout": "somebody else holds a table of the store: pg_stat_activity says who",
}


class Postgresql:
    shared = True

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url).set(drivername="postgresql+psycopg")
            self.name = mask_password(url)
            self.engine = _engine(parsed)
        except (ArgumentError, NoSuchModuleError, ValueError):  # their messages may quote the password
            raise StoreError("--db: not a database's address", _AS_IN) from None
        except ImportError as error:  # psycopg itself, or the library that it needs
            raise StoreError(
                f"a store on PostgreSQL needs the package psycopg: {' '.join(str(error).split())}",
                "pip install 'opmark[postgresql]'",
            ) from None

    def exists(self) -> bool:
        return True

    def check(self, *, create: bool) -> None:
        with self.engine.connect() as connection:
            encoding, name, read_only = connection.execute(text(_ABOUT)).one()
        if encoding != "UTF8":
            raise StoreError(
                f"{self.name}: the database is in {encoding}, which has no place for every character; expected UTF8",
                f"`createdb -E UTF8 -T template0 NAME` makes one, beside {name}",
            )
        if create and read_only == "on":
            raise StoreError(
                f"{self.name}: can only be read: a standby, or set to default_transaction_read_only",
                "name the server that is written to with --db",
            )

    def try_to_write(self) -> None:
        """Raise StoreError before anything is measured if the user may only read."""
        names = [table.name for table in METADATA.sorted_tables]
        with self.engine.connect() as connection:
            refused = [name for name in names if not connection.execute(text(_MAY_WRITE), {"name": name}).scalar_one()]
        if refused:
            raise StoreError(
                f"{self.name}: this user may not write to the store (INSERT into {', '.join(refused)})",
                "its owner may GRANT it: SELECT, INSERT on all tables and USAGE on all sequences",
            )

    def before_tables(self) -> None:
        """PostgreSQL needs no preparation."""

    def lock(self, connection: Connection) -> None:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})

    def owns(self, connection: Connection, table: Table) -> bool:
        return bool(connection.execute(text(_OWNS), {"name": table.name}).scalar_one())

    def insert_new(self, table: Table) -> Any:
        return insert(table).on_conflict_do_nothing()

    def upgraded_copy(self) -> None:
        return None

    def explain(self, doing: str, error: DBAPIError) -> StoreError:
        said = " ".join(str(error.orig).split())
        hint = next((hint for part, hint in _HINTS.items() if re.search(part, said)), None)
        kind = StoreUnreachable if _is_gone(error) else StoreError
        return kind(f"{self.name}: cannot {doing} the store: {said}", hint)

    def close(self) -> None:
        self.engine.dispose()


_ABOUT = "SELECT current_setting('server_encoding'), current_database(), current_setting('transaction_read_only')"
_OWNS = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(:name)"
_MAY_WRITE = """
SELECT to_regclass(:name) IS NULL OR has_table_privilege(to_regclass(:name), 'INSERT') AND coalesce((
    SELECT has_sequence_privilege(pg_get_serial_sequence(:name, attname), 'USAGE') FROM pg_attribute
    WHERE attrelid = to_regclass(:name) AND attname = 'number' AND NOT attisdropped), true)
"""
_PATIENT = (
    "SELECT set_config('lock_timeout', '{milliseconds}ms', true) WHERE current_setting('lock_timeout') IN ('0', '0ms')"
)


def _engine(url: URL) -> Engine:
    """Create the engine. Options of the address take precedence; a connection that broke while idle is replaced."""
    chosen = {name: value for name, value in {**_PATIENCE, **_ALWAYS}.items() if name not in url.query}
    engine = create_engine(url, pool_pre_ping=True, connect_args=chosen)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # For this transaction only, because a pooler may give the connection to others.
        if connection.get_execution_options().get("writes", False):
            connection.exec_driver_sql(_PATIENT.format(milliseconds=round(LOCK_SECONDS * 1000)))

    return engine


def _is_gone(error: DBAPIError) -> bool:
    """Return whether the server is out of reach for now: the connection broke or failed, or the server is starting,
    shutting down, read-only or out of resources. Errors of the statement itself do not count."""
    import psycopg

    passing = isinstance(error.orig, psycopg.OperationalError | psycopg.errors.ReadOnlySqlTransaction)
    return error.connection_invalidated or passing
