"""Run a user's SQL without letting it change the store.

SQLite opens the file for reading in a process of its own (`query_process.py`), and an authorizer checks every step of
the statement. PostgreSQL runs it in a read-only transaction, through a cursor, which takes a single SELECT. Such a
transaction does not stop functions that act outside of tables: the well-known ones are refused by name, and so are
superusers. The real protection is a role that may only read
(docs/store.md).
"""

from __future__ import annotations

import marshal
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from threading import Timer
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from opmark.errors import UserError
from opmark.store.location import StoreLocation
from opmark.store.postgresql import Postgresql
from opmark.store.query_process import AT_ONCE, CHECKED, NO_MEMORY
from opmark.store.record_codec import DAMAGED_FIGURES, storable
from opmark.store.sql import open_sql
from opmark.store.sqlite import BUSY_SECONDS, Sqlite
from opmark.store.tables import NAMES, create_views

SECONDS = 60.0
"""Default time limit of a statement."""

Row = tuple[Any, ...]
Answer = tuple[list[str], list[Row]]
"""(names of the columns, rows)"""
_T = TypeVar("_T")

_PROCESS = Path(__file__).with_name("query_process.py")
_AUTH = 23
"""SQLite's error code for a statement that was not allowed."""
_FILE_ERRORS = {
    5: "database is locked",
    6: "database table is locked",
    8: "attempt to write a readonly database",
    10: "disk I/O error",
    11: "database disk image is malformed",
    13: "database or disk is full",
    14: "unable to open database file",
    26: "file is not a database",
}
"""Errors of files: SQLite's codes and messages. Python before 3.11 has the message only."""
_HINT = f"one SELECT over the views {', '.join(NAMES)}"


def query(
    location: StoreLocation, sql: str, limit: int | None = None, seconds: float = SECONDS, **options: bool
) -> Answer:
    """Return the first `limit` rows of a SELECT, or all of them. The options are those of `open_query`."""
    with open_query(location, sql, limit, seconds, **options) as (columns, rows):
        return columns, list(rows)


@contextmanager
def open_query(
    location: StoreLocation, sql: str, limit: int | None = None, seconds: float = SECONDS, *, as_superuser: bool = False
) -> Iterator[tuple[list[str], Iterator[Row]]]:
    """Run a SELECT and yield its columns and rows as they come. `seconds` limits the time of the database, not that of
    the reader."""
    if storable(sql) != sql:
        raise UserError("query: expected SQL, got a text with NUL or with half a character in it", _HINT)
    with closing(open_sql(location)) as store:
        database = store.database
        if isinstance(database, Sqlite):
            with _in_sqlite(database, sql, limit, seconds) as answer:
                yield answer
        else:
            assert isinstance(database, Postgresql)
            with _in_postgresql(database, sql, limit, seconds, as_superuser=as_superuser) as answer:
                yield answer


class _TimeBudget:
    """A time budget over several calls."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self.left = seconds
        self.ended = False

    def spend(self, call: Callable[[], _T], stop: Callable[[], None] | None = None) -> _T:
        """Make a call and return its result; `stop` interrupts it when the time is over."""
        timer = Timer(max(self.left, 0.001), self._end, [stop]) if stop else None
        begun = time.monotonic()
        if timer:
            timer.daemon = True
            timer.start()
        try:
            return call()
        finally:
            if timer:
                timer.cancel()
                timer.join()
            self.left -= time.monotonic() - begun

    def _end(self, stop: Callable[[], None]) -> None:
        self.ended = True
        stop()


@contextmanager
def _in_sqlite(
    database: Sqlite, sql: str, limit: int | None, seconds: float
) -> Iterator[tuple[list[str], Iterator[Row]]]:
    """Ask in another process, which is killed when the time is over: no function of SQLite holds this one up."""
    budget = _TimeBudget(seconds)
    most = "" if limit is None else str(limit)
    command = [sys.executable, "-IS", str(_PROCESS), database.read_address(), str(BUSY_SECONDS), most]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:  # fmt: skip
        questions, answers = process.stdin, process.stdout
        assert questions is not None
        assert answers is not None

        def receive() -> Any:
            try:
                answer = budget.spend(lambda: marshal.load(answers), process.kill)
            except (EOFError, ValueError, TypeError):
                if budget.ended:
                    raise _timeout_error(seconds) from None
                raise UserError(
                    "query: the process that asks the database has died", "is there enough memory?"
                ) from None
            if isinstance(answer, tuple):
                raise _sqlite_error(database, *answer)
            return answer

        try:
            with suppress(BrokenPipeError):  # then it has died, and there is no answer
                questions.write(marshal.dumps((sql, create_views("sqlite", CHECKED), DAMAGED_FIGURES)))
                questions.close()
            yield _names(receive()), chain.from_iterable(iter(receive, []))
        finally:
            process.kill()


def _fetch_rows(fetch: Callable[[int], list[Row]], limit: int | None) -> Iterator[Row]:
    left = limit
    while left is None or left > 0:
        count = AT_ONCE if left is None else min(left, AT_ONCE)
        rows = fetch(count)
        yield from rows
        if len(rows) < count:
            return
        left = None if left is None else left - count


def _sqlite_error(database: Sqlite, said: str, number: int | None) -> UserError:
    """Explain an error by SQLite's code or by its whole message; a part of the message may be quoted from the
    statement."""
    if number == NO_MEMORY:
        return UserError("query: the statement takes too much memory", "ask for less: WHERE, or no ORDER BY")
    of_the_file = said in _FILE_ERRORS.values() if number is None else (number & 0xFF) in _FILE_ERRORS
    trouble = database.known_trouble("read", said) if of_the_file else None
    denied = said.startswith("not authorized") if number is None else number & 0xFF == _AUTH
    return trouble or _query_error(said, only_reads=denied)


@contextmanager
def _in_postgresql(
    database: Postgresql, sql: str, limit: int | None, seconds: float, *, as_superuser: bool
) -> Iterator[tuple[list[str], Iterator[Row]]]:
    import psycopg

    if found := refused_in(sql):
        raise UserError(f"query: {found}", _HINT)
    budget = _TimeBudget(seconds)
    try:
        with closing(database.engine.raw_connection()) as pooled:
            connection: Any = pooled.driver_connection
            connection.read_only = True
            try:
                if not as_superuser:
                    refuse_roles(connection)
                yield _through_a_cursor(connection, sql, limit, budget)
            finally:
                connection.rollback()
    except DBAPIError as error:
        raise database.explain("read", error) from None
    except psycopg.Error as error:
        if isinstance(error, psycopg.errors.QueryCanceled) and budget.left <= 0:
            raise _timeout_error(seconds) from None
        refused = isinstance(error, psycopg.errors.ReadOnlySqlTransaction)
        raise _query_error(" ".join(str(error).split()), only_reads=refused) from None


def _through_a_cursor(
    connection: Any, sql: str, limit: int | None, budget: _TimeBudget
) -> tuple[list[str], Iterator[Row]]:
    def say(text: str, **options: Any) -> Any:
        """Execute a statement with the remaining time as its time-out on the server."""
        connection.execute(f"SET LOCAL statement_timeout = {max(1, round(budget.left * 1000))}")
        return budget.spend(lambda: connection.execute(text.encode(), **options))

    connection.execute("SET LOCAL standard_conforming_strings = on")  # as `refused_in` reads them
    # `binary` takes the protocol that knows one statement at a time: another one behind a semicolon is refused.
    say(f"DECLARE asked NO SCROLL CURSOR FOR {sql.rstrip().rstrip(';')}", binary=True)
    names = _names([column[0] for column in say("FETCH FORWARD 0 FROM asked").description or ()])
    return names, _fetch_rows(lambda count: say(f"FETCH FORWARD {count} FROM asked").fetchall(), limit)


def _names(columns: list[str]) -> list[str]:
    if not columns:
        raise UserError("query: the statement selects nothing", _HINT)
    return columns


def _timeout_error(seconds: float) -> UserError:
    return UserError(f"query: not answered within {seconds:g} s", "ask for less: WHERE, or LIMIT")


def _query_error(said: str, *, only_reads: bool) -> UserError:
    return UserError(f"query: {'only reads; ' * only_reads}the database says: {said}", _HINT)


# Functions of PostgreSQL that do more than read, and roles that are not restricted to reading.

_FUNCTION = re.compile(
    r"\b(pg_(read|ls|stat)_(binary_)?(file|dir)\w*|pg_ls_\w+|pg_(terminate|cancel)_backend|pg_(try_)?advisory\w*"
    r"|pg_(reload_conf|rotate_logfile|promote|switch_wal|create_restore_point|backup_\w+|wal_replay_\w+|notify)"
    r"|pg_(create|drop|copy|replication|logical)_\w*|pg_sleep\w*|lo_\w+|loread|lowrite|dblink\w*|set_config|query_to_xml\w*"
    r"|cursor_to_xml\w*|(table|schema|database)_to_xml\w*|setval|nextval)\"?\s*\(",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"""(?P<coded>(?<!\w)U&["'])
      | (?P<name>"(?:[^"]|"")*")
      | (?<!\w)E'(?:[^'\\]|\\.|'')*'
      | '(?:[^']|'')*'
      | (?<![\w$])\$(?P<tag>\w*)\$.*?\$(?P=tag)\$
      | --[^\r\n]*
      | (?P<block>/\*)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
"""Strings, comments and quoted names, within which no code begins."""
_BLOCK = re.compile(r"/\*|\*/")

_ROLES = ("pg_read_server_files", "pg_write_server_files", "pg_execute_server_program", "pg_signal_backend")
_ROLE_QUERY = (
    "SELECT current_user, rolsuper, ARRAY(SELECT r.rolname::text FROM pg_roles r WHERE r.rolname = ANY(%s) "
    "AND pg_has_role(current_user, r.oid, 'MEMBER')) FROM pg_roles WHERE rolname = current_user"
)


def refused_in(sql: str) -> str | None:
    """Return why the statement is refused, or None."""
    code: list[str] = []
    place = 0
    while found := _TOKEN.search(sql, place):
        if found["coded"]:
            return "names and texts of the kind U&'...' are not taken"
        code += [sql[place : found.start()], found["name"] or " "]
        place = _end_of_block(sql, found.end()) if found["block"] else found.end()
    function = _FUNCTION.search("".join([*code, sql[place:]]))
    return f"the function {function[1]} does more than read" if function else None


def _end_of_block(sql: str, place: int) -> int:
    """Return the end of a block comment, which may contain others."""
    depth = 1
    while depth and (found := _BLOCK.search(sql, place)):
        depth += 1 if found[0] == "/*" else -1
        place = found.end()
    return len(sql) if depth else place


def refuse_roles(connection: Any) -> None:
    """Raise UserError for roles that a read-only transaction does not restrict."""
    user, everything, roles = connection.execute(_ROLE_QUERY, [list(_ROLES)]).fetchone()
    if everything or roles:
        what = "a superuser" if everything else f"a member of {', '.join(roles)}"
        raise UserError(
            f"query: `{user}` is {what}, whom nothing on that server holds back",
            "ask as a role that may only read (docs/store.md); --as-superuser asks all the same",
        )
