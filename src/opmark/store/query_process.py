"""Runs one SELECT on an SQLite file, in a process of its own that can be ended at any moment.

SQLite can interrupt a statement between two steps, but not within a function, and one call of `replace` may take hours.
This program imports the standard library alone, so that it starts at once. Its arguments are the address of the file,
the seconds to wait for a writer, and the number of rows; it reads the statement from standard input. It answers with
the names of the columns, then lists of rows, then an empty list; or with a tuple: an error.
"""

import marshal
import sqlite3
import sys
from typing import Any

AT_ONCE = 500
"""Rows per message."""
_LIMITS = {0: 16 << 20, 8: 1000}
"""Limits by SQLite's numbers: bytes of a value, characters of a LIKE pattern. What a statement may hold in memory."""
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_REFUSED = frozenset({"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"})


def authorize(
    action: int, first: "str | None", second: "str | None", _database: "str | None", _by: "str | None"
) -> int:
    """Allow reading and harmless functions. For a function, the second argument is its name."""
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def send(message: Any) -> None:
    marshal.dump(message, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def main(address: str, wait: str, limit: str) -> None:
    sql = sys.stdin.buffer.read().decode()
    left = int(limit) if limit else None
    try:
        connection = sqlite3.connect(address, uri=True, timeout=float(wait))
        connection.execute("PRAGMA query_only=ON")
        connection.set_authorizer(authorize)
        if hasattr(connection, "setlimit"):  # from Python 3.11
            for what, most in _LIMITS.items():
                connection.setlimit(what, most)
        cursor = connection.execute(sql)
        send([column[0] for column in cursor.description or ()])
        while left is None or left > 0:
            rows = cursor.fetchmany(AT_ONCE if left is None else min(left, AT_ONCE))
            if not rows:
                break
            send(rows)
            left = None if left is None else left - len(rows)
        send([])
    except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:
        send((str(error), getattr(error, "sqlite_errorcode", None)))


if __name__ == "__main__":
    main(*sys.argv[1:])
