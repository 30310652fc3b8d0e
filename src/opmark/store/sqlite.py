"""A store in one SQLite file. Several processes may write to it at once."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError

from opmark.errors import StoreError
from opmark.scratch import ScratchFolder
from opmark.store.location import StoreLocation, address
from opmark.store.protocol import StoreReplaced, StoreUnreachable
from opmark.units import count_bytes

BUSY_SECONDS = 30.0
"""Seconds that one writer waits for another."""

_PAGE = 8192
"""Page size in bytes. Records span several pages, and small ones would waste a fifth of the space."""

_MAGIC = b"SQLite format 3\0"
_HEAD = 512
"""Bytes at the beginning of a file that tell what it is."""
_KINDS = {
    b"\x1f\x8b": "a gzip file", b"PK\x03\x04": "a zip file", b"\xfd7zXZ": "an xz file", b"(\xb5/\xfd": "a zstd file",
    b"PAR1": "a Parquet file", b"%PDF": "a PDF", b"PGDMP": "a dump of PostgreSQL", b"{": "a JSON file",
    b"[": "a JSON file", b"<": "an HTML or XML file", b"\x7fELF": "a program",
}  # fmt: skip

_HINTS = {
    "not a database": "this file is something else: name another with --db",
    "malformed": "the file is damaged, and was left as it is: `sqlite3 FILE .recover` saves what can be saved",
    "readonly database": "the file or its folder cannot be written: name another with --db, or change its permissions",
    "unable to open": "is its folder there, and may you write to it? --db or OPMARK_DB names another place",
    "disk is full": "nothing is half written; make room, or name another place with --db",
    "disk I/O": "nothing is half written; is the disk full, or broken? --db names another place",
}


class Sqlite:
    shared = False

    def __init__(
        self,
        path: Path,
        scratch: ScratchFolder | None = None,
        *,
        alone: bool = False,
        wait: float | None = None,
    ) -> None:
        """`alone`: lock the file until this is closed. `wait`: seconds to wait for others that have it open."""
        self.path = path
        self.name = str(path)
        self.engine = _engine(path, BUSY_SECONDS if wait is None else wait, alone=alone)
        self._scratch = scratch

    def exists(self) -> bool:
        return self.path.exists()

    def check(self, *, create: bool) -> None:
        """Say what a file is that SQLite could not read. An empty one becomes a store when it is written."""
        if self.path.is_dir():
            raise StoreError(f"{self.path}: is a folder, not a store", f"as in --db {self.path / 'opmark.db'}")
        try:
            with self.path.open("rb") as file:
                start = file.read(_HEAD)
        except OSError:
            return  # SQLite says why
        if not start and not create and not Path(f"{self.path}-wal").exists():
            raise StoreError(
                f"{self.path}: is an empty file, not a store yet",
                "`opmark run` makes a store of it, or name another with --db",
            )
        if start and not start.startswith(_MAGIC):
            kind = next((name for magic, name in _KINDS.items() if start.startswith(magic)), None)
            kind = kind or ("a text file" if _is_text(start) else "some other file")
            raise StoreError(f"{self.path}: is {kind}, not a store (an SQLite file)", _HINTS["not a database"])

    def try_to_write(self) -> None:
        """Create the folder and a temporary file in it. Not necessary while another process is writing."""
        if Path(f"{self.path}-wal").exists():
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot be made: {error.strerror} ({error.filename or self.path.parent})",
                "name another place with --db or OPMARK_DB",
            ) from None

    def before_tables(self) -> None:
        """Switch a new file to WAL, so that readers and a writer do not wait for each other.

        SQLite does not wait for this lock by itself, and another process may be creating the same store.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                with self.engine.connect() as connection:
                    raw = connection.connection.driver_connection
                    assert isinstance(raw, sqlite3.Connection)
                    raw.execute(f"PRAGMA page_size={_PAGE}")  # has no effect on an existing file
                    raw.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise self._explain("make", str(error)) from None
                time.sleep(0.02)

    def lock(self, connection: Connection) -> None:
        """A writing transaction has locked the file already."""

    def owns(self, connection: Connection, table: Table) -> bool:
        """Return True: there are no permissions within a file."""
        return True

    def insert_new(self, table: Table) -> Any:
        return insert(table).on_conflict_do_nothing()

    def read_address(self) -> str:
        """Return the address at which SQLite opens the file for reading."""
        return _address(self.path, BUSY_SECONDS, "mode=ro")

    def read_only(self) -> sqlite3.Connection:
        """Open a separate connection that cannot write."""
        connection = _connect(self.path, BUSY_SECONDS, "mode=ro")
        connection.execute("PRAGMA query_only=ON")
        return connection

    def upgraded_copy(self) -> Sqlite:
        scratch = ScratchFolder("store")
        path = Path(scratch.name) / self.path.name
        try:
            with closing(self.read_only()) as source, closing(sqlite3.connect(path)) as copy:
                source.backup(copy)
        except sqlite3.Error as error:
            scratch.cleanup()
            raise StoreError(
                f"{self.path}: a store of an older version, and no copy of it can be made for reading: {error}",
                _hint(str(error)) or f"is there room in {tempfile.gettempdir()}? `opmark runs --upgrade` needs no copy",
            ) from None
        return Sqlite(path, scratch)

    def explain(self, doing: str, error: DBAPIError) -> StoreError:
        return self._explain(doing, str(error.orig), StoreUnreachable if _may_pass(error.orig) else StoreError)

    def known_trouble(self, doing: str, text: str) -> StoreError | None:
        """Explain a message of SQLite about the file; None if it is not about the file."""
        return self._explain(doing, text) if _hint(text) else None

    def _explain(self, doing: str, text: str, kind: type[StoreError] = StoreError) -> StoreError:
        return kind(f"{self.path}: cannot {doing} the store: {text}", _hint(text))

    def close(self) -> None:
        self.engine.dispose()
        if self._scratch:
            self._scratch.cleanup()


def _is_text(start: bytes) -> bool:
    return b"\0" not in start and "\N{REPLACEMENT CHARACTER}" not in start[:-3].decode(errors="replace")


def _connect(path: Path, wait: float, mode: str) -> sqlite3.Connection:
    """Open a connection that reads a text with a damaged byte, instead of failing for all rows that are read with
    it."""
    connection = sqlite3.connect(_address(path, wait, mode), uri=True, timeout=wait, check_same_thread=False)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def _address(path: Path, wait: float, mode: str) -> str:
    """Return the address at which the file can be opened. SQLite needs write access to the folder to coordinate with
    writers. On a read-only disk there are no writers; if only this user cannot write, the file is opened for
    reading."""
    uri = path.absolute().as_uri()
    writable = os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    if writable or not path.exists() or Path(f"{path}-wal").exists():
        return f"{uri}?{mode}"
    if not _on_read_only_disk(path):
        try:
            with closing(sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=wait)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError:
            pass  # it needs a log, which cannot be created
        else:
            return f"{uri}?mode=ro"
    return f"{uri}?immutable=1"


def _on_read_only_disk(path: Path) -> bool:
    return hasattr(os, "statvfs") and bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _hint(text: str) -> str | None:
    hints = {**_HINTS, "locked": f"another process held it for more than {BUSY_SECONDS:g} s"}
    return next((hint for part, hint in hints.items() if part in text), None)


def _may_pass(error: BaseException | None) -> bool:
    """Return whether the error is about the file, not the statement, so that a later attempt may succeed."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.NotSupportedError | sqlite3.DataError
    )


def _engine(path: Path, wait: float, *, alone: bool) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)), creator=lambda: _connect(path, wait, "mode=rwc"))

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        assert isinstance(connection, sqlite3.Connection)
        connection.isolation_level = None  # SQLAlchemy says BEGIN, below
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        if alone:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writing transaction takes the lock at its start instead of failing at its first write.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            found = path.stat()
            now = found.st_dev, found.st_ino  # they distinguish a file from another one of the same name
        except OSError:
            now = None
        opened = connection.info.setdefault("file", now)
        if not writes:
            return
        if opened is None:
            connection.info["file"] = now  # this transaction creates it
        elif now != opened:  # whatever is written to a file that was removed or replaced would be lost
            connection.exec_driver_sql("ROLLBACK")
            what = "is gone" if now is None else "is another file than it was"
            raise StoreReplaced(f"{path}: cannot write to the store: it {what}; somebody moved, removed or replaced it")

    return engine


def compact(location: StoreLocation = None) -> str:
    """Give the space of removed runs back to the disk, and return a message. Waits for other users of the file; a
    server reuses space by itself."""
    where = address(location)
    if isinstance(where, str):
        return "PostgreSQL gives the room to new records by itself (autovacuum); VACUUM FULL returns it to the disk"
    before = _size(where)
    try:
        with closing(sqlite3.connect(f"{where.resolve().as_uri()}?mode=rw", timeout=BUSY_SECONDS, uri=True)) as file:
            file.execute("VACUUM")
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise StoreError(
            f"{where}: cannot be made smaller: {error}", "it takes as much free room as the store; nothing is lost"
        ) from None
    return f"{where}: {count_bytes(before)} before, {count_bytes(_size(where))} now"


def _size(path: Path) -> int:
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
