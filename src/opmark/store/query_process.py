"""Runs one SELECT on an SQLite file, in a process of its own that can be ended at any moment.

SQLite can interrupt a statement between two steps, but not within a function, and one call of `replace` may take hours.
This program imports the standard library alone, so that it starts at once. Its arguments are the address of the file,
the seconds to wait for a writer, and the number of rows; from standard input it reads the statement, the statements
that make the views, and what stands in the place of damaged figures. It answers with the names of the columns, then
lists of rows, then an empty list; or with a tuple: an error.

The views are its own: those of the file may be anybody's, and SQLite itself has no checksums.
"""

import hashlib
import json
import marshal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

AT_ONCE = 500
"""Rows per message."""
CHECKED = "opmark_checked_figures"
"""Name of the function that checks figures, in SQL."""
_SEAL = 8
"""Characters of a checksum."""
_LIMITS = {0: 16 << 20, 8: 1000}
"""Limits by SQLite's numbers: bytes of a value, characters of a LIKE pattern. What a statement may hold in memory."""
_MEMORY = 1 << 30
"""Bytes that this process may take: what a statement sorts is held in memory."""
NO_MEMORY = 7
"""SQLite's error code for a lack of memory."""
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_REFUSED = frozenset({"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"})


def authorize(
    action: int, first: "str | None", second: "str | None", _database: "str | None", _by: "str | None"
) -> int:
    """Allow reading and harmless functions. For a function, the second argument is its name."""
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def seal(text: bytes) -> str:
    """Return the checksum of a figure: the beginning of the MD5 of its text before that, which a server can compute as
    well."""
    return hashlib.md5(text, usedforsecurity=False).hexdigest()[:_SEAL]


def is_sealed(figure: bytes) -> bool:
    """Return whether a figure has the right checksum. Figures of older versions end with their cautions and have
    none."""
    return figure.endswith(b"]]") or figure[-_SEAL - 2 : -2] == seal(figure[: -_SEAL - 4]).encode()


def split_figures(text: str) -> Iterator[str]:
    """Yield the texts of the figures in a list, or raise ValueError or IndexError."""
    decoder, place = json.JSONDecoder(), 1
    while text[place] != "]":
        _, end = decoder.raw_decode(text, place)
        yield text[place:end]
        place = end + (text[end] == ",")


def send(message: Any) -> None:
    marshal.dump(message, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def limit_memory() -> None:
    """Limit the memory of this process, where the system can do that. A stricter limit of the user stays."""
    if resource is None:
        return
    now, most = resource.getrlimit(resource.RLIMIT_AS)
    if now == resource.RLIM_INFINITY or now > _MEMORY:
        with suppress(ValueError, OSError):  # macOS refuses some limits
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, most))


def main(address: str, wait: str, limit: str) -> None:
    question: tuple[str, list[str], str] = marshal.loads(sys.stdin.buffer.read())
    sql, views, damaged = question
    left = int(limit) if limit else None
    limit_memory()

    def check(figures: Any) -> str:
        """Return the text of figures, or what stands in its place. As a text, bytes that are no UTF-8 would not come
        here, and the whole statement would fail."""
        try:
            text = str(figures, "utf-8")  # a TypeError for NULL
            return text if all(is_sealed(figure.encode()) for figure in split_figures(text)) else damaged
        except (IndexError, ValueError, TypeError, RecursionError):
            return damaged

    try:
        connection = sqlite3.connect(address, uri=True, timeout=float(wait))
        connection.text_factory = lambda text: text.decode(errors="replace")
        connection.create_function(CHECKED, 1, check, deterministic=True)
        connection.execute("PRAGMA temp_store=MEMORY")
        for statement in views:
            connection.execute(statement)
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
    except MemoryError:
        send(("out of memory", NO_MEMORY))


if __name__ == "__main__":
    main(*sys.argv[1:])
