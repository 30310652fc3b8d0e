"""SQL of a person, answered and never obeyed: nothing in the store can be changed by it.

SQLite opens the file for reading, and is asked about every step of a statement before it is run. PostgreSQL runs it in
a read-only transaction, through a cursor, which takes one SELECT and nothing else. That transaction cannot stop a
function that acts outside of tables; the well-known ones are refused by name, and a role that may only read is the
real lock (docs/store.md).
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from opmark.errors import UserError
from opmark.store.location import Told
from opmark.store.open import open_sql
from opmark.store.pack import storable
from opmark.store.postgresql import Postgresql
from opmark.store.sqlite import Sqlite
from opmark.store.views import NAMES

SECONDS = 60.0
"""After which a statement is given up."""

Answer = tuple[list[str], list[tuple[Any, ...]]]
"""(names of the columns, rows)"""

_STEPS = 10_000
"""Of SQLite's machine between two looks at the clock."""
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_REFUSED_IN_SQLITE = frozenset({"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"})
_REFUSED = re.compile(
    r"\b(pg_(read|ls|stat)_(binary_)?(file|dir)\w*|pg_ls_\w+|pg_(terminate|cancel)_backend|pg_(try_)?advisory\w*"
    r"|pg_(reload_conf|rotate_logfile|promote|switch_wal|create_restore_point|backup_\w+|wal_replay_\w+|notify)"
    r"|pg_(create|drop|copy|replication|logical)_\w*|pg_sleep\w*|lo_\w+|loread|lowrite|dblink\w*|set_config|query_to_xml\w*"
    r"|cursor_to_xml\w*|(table|schema|database)_to_xml\w*|setval|nextval)\"?\s*\(",
    re.IGNORECASE,
)
_HINT = f"one SELECT over the views {', '.join(NAMES)}"


def query(told: Told, sql: str, limit: int | None = None, seconds: float = SECONDS) -> Answer:
    """The first `limit` rows of what a statement selects; all without it."""
    if storable(sql) != sql:
        raise UserError("query: expected SQL, got a text with NUL or with half a character in it", _HINT)
    with closing(open_sql(told)) as store:
        database = store.database
        if isinstance(database, Sqlite):
            return _in_sqlite(database, sql, limit, seconds)
        assert isinstance(database, Postgresql)
        return _in_postgresql(database, sql, limit, seconds)


def _in_sqlite(database: Sqlite, sql: str, limit: int | None, seconds: float) -> Answer:
    deadline = time.monotonic() + seconds
    try:
        with closing(database.read_only()) as connection:
            connection.set_authorizer(_authorize)
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            cursor = connection.execute(sql)
            rows = cursor.fetchall() if limit is None else cursor.fetchmany(limit)
            return _names(cursor.description), rows
    except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:
        of_the_file = database.known_trouble("read", str(error))
        raise of_the_file or _mistake(str(error), seconds if "interrupted" in str(error) else None) from None


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _by: str | None) -> int:
    """Of a function the second argument is its name."""
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_IN_SQLITE:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _in_postgresql(database: Postgresql, sql: str, limit: int | None, seconds: float) -> Answer:
    import psycopg

    if found := _REFUSED.search(sql):
        raise UserError(f"query: the function {found[1]} does more than read", _HINT)
    try:
        with closing(database.engine.raw_connection()) as pooled:
            return _through_a_cursor(pooled.driver_connection, sql, limit, seconds)
    except psycopg.Error as error:
        gave_up = isinstance(error, psycopg.errors.QueryCanceled)
        raise _mistake(" ".join(str(error).split()), seconds if gave_up else None) from None


def _through_a_cursor(connection: Any, sql: str, limit: int | None, seconds: float) -> Answer:
    connection.read_only = True
    say: Callable[..., Any] = connection.execute
    say(f"SET LOCAL statement_timeout = {max(1, round(seconds * 1000))}")
    try:
        # What is prepared is one statement: another one behind a semicolon is refused.
        say(f"DECLARE asked NO SCROLL CURSOR FOR {sql.rstrip().rstrip(';')}".encode(), prepare=True)
        cursor = say(f"FETCH FORWARD {'ALL' if limit is None else int(limit)} FROM asked")
        return _names(cursor.description), cursor.fetchall()
    finally:
        connection.rollback()


def _names(description: Any) -> list[str]:
    if not description:
        raise UserError("query: the statement selects nothing", _HINT)
    return [column[0] for column in description]


def _mistake(said: str, gave_up_after: float | None) -> UserError:
    if gave_up_after is not None:
        return UserError(f"query: not answered within {gave_up_after:g} s", "ask for less: WHERE, or LIMIT")
    if "authoriz" in said or "prohibited" in said or "read-only" in said:
        return UserError(f"query: only reads; the database says: {said}", _HINT)
    return UserError(f"query: the database says: {said}", _HINT)
