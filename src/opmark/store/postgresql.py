"""A store on a PostgreSQL server, for a team."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, create_engine, make_url, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from opmark.errors import StoreError
from opmark.store.database import Lost

# A network that is silently gone is noticed within half a minute, and not within the hours that are usual.
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_LOCK = 0x6F706D61
"""Of whoever makes or upgrades the tables: any number will do that no other program uses."""
_AS_IN = "as in postgresql://user@host/database"

_HINTS = {
    "password authentication failed": "is the password right? PGPASSWORD or ~/.pgpass may have it",
    "no password supplied": "PGPASSWORD or ~/.pgpass may have it",
    "does not exist": "`createdb NAME` makes a database; " + _AS_IN,
    "Connection refused": "is the server running, and is that its port?",
    "could not translate host name": "is the host's name right? " + _AS_IN,
    "permission denied": "the user must be allowed to create tables and views in the database",
}


class Postgresql:
    shared = True

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url).set(drivername="postgresql+psycopg")
            self.name = parsed.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
            # A connection that broke while nobody used it is replaced before it is used.
            self.engine = create_engine(parsed, pool_pre_ping=True, connect_args=_PATIENCE)
        except (ArgumentError, NoSuchModuleError, ValueError) as error:
            raise StoreError(f"--db: not a database's address: {error}", _AS_IN) from None
        except ModuleNotFoundError:
            raise StoreError(
                "a store on PostgreSQL needs the package psycopg", "pip install 'opmark[postgresql]'"
            ) from None

    def exists(self) -> bool:
        return True

    def try_to_write(self) -> None:
        """The first statement tells."""

    def before_tables(self) -> None:
        """Nothing."""

    def lock(self, connection: Connection) -> None:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})

    def insert_new(self, table: Table) -> Any:
        return insert(table).on_conflict_do_nothing()

    def upgraded_copy(self) -> None:
        return None

    def explain(self, doing: str, error: DBAPIError) -> StoreError:
        said = " ".join(str(error.orig).split())
        hint = next((hint for part, hint in _HINTS.items() if part in said), None)
        kind = Lost if _is_gone(error) else StoreError
        return kind(f"{self.name}: cannot {doing} the store: {said}", hint)

    def close(self) -> None:
        self.engine.dispose()


def _is_gone(error: DBAPIError) -> bool:
    """A broken connection, one that could not be made, a server that is shutting down, starting, read-only for now,
    or out of what it needs. What is wrong with the statement itself is none of these."""
    import psycopg

    passing = isinstance(error.orig, psycopg.OperationalError | psycopg.errors.ReadOnlySqlTransaction)
    return error.connection_invalidated or passing
