"""The store in an SQL database: one SQLite file. Several processes may write to it at once."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or_ignore
from sqlalchemy.exc import DBAPIError

from opmark.errors import StoreError
from opmark.schema import Environment, Record, Run
from opmark.store.pack import from_row, to_row
from opmark.store.tables import ENVIRONMENT, FINDING, META, METADATA, RECORD, RUN, VERSION

_BUSY_SECONDS = 30
"""How long one writer waits for another."""


class SqlStore:
    def __init__(self, path: Path, *, create: bool) -> None:
        """Open the store at `path`; with `create`, make it if there is none."""
        self._path = path
        self._engine = _engine(path)
        self._writer = self._engine.execution_options(writes=True)
        self._ready = False
        """Whether the tables are known to be there."""
        self._version = VERSION
        """Of the file."""
        try:
            self._open(create=create)
        except StoreError:
            self.close()
            raise

    def begin(self, run: Run) -> None:
        with self._writing() as connection:
            connection.execute(insert(RUN), msgspec.to_builtins(run))

    def add_environment(self, environment: Environment) -> None:
        row = {"id": environment.id, "facts": msgspec.json.encode(environment.facts).decode()}
        with self._writing() as connection:
            connection.execute(insert_or_ignore(ENVIRONMENT).on_conflict_do_nothing(), row)

    def append(self, run_id: str, record: Record) -> None:
        with self._writing() as connection:
            connection.execute(insert_or_ignore(RECORD).on_conflict_do_nothing(), to_row(run_id, record))

    def runs(self, limit: int | None = None) -> list[Run]:
        query = select(RUN).order_by(RUN.c.number.desc()).limit(limit)
        with self._reading() as connection:
            return [_run(row) for row in connection.execute(query).mappings()]

    def records(self, run_id: str) -> list[Record]:
        query = select(RECORD.c.body, RECORD.c.samples).where(RECORD.c.run_id == run_id).order_by(RECORD.c.number)
        with self._reading() as connection:
            return [from_row(body, samples) for body, samples in connection.execute(query)]

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]:
        query = select(ENVIRONMENT).where(ENVIRONMENT.c.id.in_(list(ids)))
        with self._reading() as connection:
            rows = connection.execute(query).mappings()
            return {row["id"]: Environment(row["id"], msgspec.json.decode(row["facts"])) for row in rows}

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        row = {"kind": kind, "chip": chip, "started": started, "body": msgspec.json.encode(body).decode()}
        with self._writing() as connection:
            connection.execute(insert(FINDING), row)

    def kept(self, kind: str, chip: str) -> Any:
        if self._version < 2:
            return None
        which = (FINDING.c.kind == kind) & (FINDING.c.chip == chip)
        query = select(FINDING.c.body).where(which).order_by(FINDING.c.number.desc()).limit(1)
        with self._reading() as connection:
            body = connection.execute(query).scalar()
        return None if body is None else msgspec.json.decode(body)

    def close(self) -> None:
        self._engine.dispose()

    def _open(self, *, create: bool) -> None:
        if self._path.exists():
            with self._explained("open"):
                self._check(create=create)
            if create:
                with self._writing():
                    pass  # whoever is going to write wants to know now, not after an hour of measuring
        elif create:
            _try_to_write(self._path)  # the file itself comes with the first thing to store
        else:
            raise _none_yet(self._path)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._explained("write to"):
            if not self._ready:
                self._create()
            with self._writer.begin() as connection:
                yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._explained("read"), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """The driver's error as a message about this file."""
        try:
            yield
        except DBAPIError as error:
            raise _explain(self._path, doing, str(error.orig)) from None

    def _create(self) -> None:
        self._let_readers_in()
        with self._writer.begin() as connection:
            METADATA.create_all(connection)
            # Another process may have been quicker; then its row is as good.
            row = {"key": "version", "value": str(VERSION)}
            connection.execute(insert_or_ignore(META).on_conflict_do_nothing(), row)
        self._ready = True

    def _let_readers_in(self) -> None:
        """WAL: readers and a writer do not wait for each other. The file remembers it; no other file is touched.

        SQLite does not wait for this one lock by itself, and another process may be making the same store.
        """
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                with self._engine.connect() as connection:
                    raw = connection.connection.driver_connection
                    assert isinstance(raw, sqlite3.Connection)
                    raw.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise _explain(self._path, "make", str(error)) from None
                time.sleep(0.02)

    def _check(self, *, create: bool) -> None:
        names = set(inspect(self._engine).get_table_names())
        if not names and create:  # an empty file, or one that another process is just making
            self._create()
            return
        if not names:
            raise _none_yet(self._path)
        if META.name not in names:
            raise StoreError(
                f"{self._path}: is a database, but not one of opmark (it has {', '.join(sorted(names)[:4])})",
                "name another file with --db",
            )
        with self._engine.connect() as connection:
            text = connection.execute(select(META.c.value).where(META.c.key == "version")).scalar()
        if text is None or not text.isdecimal():
            raise StoreError(f"{self._path}: does not say of which version it is", "name another file with --db")
        found = int(text)
        if found > VERSION:
            raise StoreError(
                f"{self._path}: is a store of version {found}; this opmark reads up to {VERSION}", "upgrade opmark"
            )
        self._version = found
        if found < VERSION and create:
            self._upgrade()
        self._ready = True

    def _upgrade(self) -> None:
        """Every step so far only adds tables."""
        with self._writer.begin() as connection:
            METADATA.create_all(connection)
            connection.execute(update(META).where(META.c.key == "version").values(value=str(VERSION)))
        self._version = VERSION


def _none_yet(path: Path) -> StoreError:
    return StoreError(f"{path}: there is no store yet", "`opmark run` makes one, or name another with --db")


def _try_to_write(path: Path) -> None:
    """Makes the folder, and a file in it that is gone at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be made: {error.strerror} ({error.filename or path.parent})",
            "name another place with --db or OPMARK_DB",
        ) from None


def _engine(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        assert isinstance(connection, sqlite3.Connection)
        connection.isolation_level = None  # SQLAlchemy says BEGIN, below
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that writes takes its turn at once, instead of failing when it first writes.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _explain(path: Path, doing: str, text: str) -> StoreError:
    hints = {
        "not a database": "this file is something else: name another with --db",
        "readonly": "the file or its folder cannot be written: name another with --db, or change its permissions",
        "unable to open": "is its folder there, and may you write to it? --db or OPMARK_DB names another place",
        "locked": f"another process held it for more than {_BUSY_SECONDS} s",
    }
    hint = next((hint for part, hint in hints.items() if part in text), None)
    return StoreError(f"{path}: cannot {doing} the store: {text}", hint)


def _run(row: Any) -> Run:
    return Run(**{key: row[key] for key in Run.__struct_fields__})
