"""The store in an SQL database: the same statements for an SQLite file and a PostgreSQL server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar
from weakref import finalize

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, event, func, insert, inspect, literal_column, select
from sqlalchemy import case as sql_case
from sqlalchemy.exc import DBAPIError

from opmark.errors import StoreError
from opmark.schema import Case, Environment, Record, Run
from opmark.schema.machine import MachineFinding
from opmark.schema.record import Figure
from opmark.schema.record_head import HeadBody
from opmark.schema.tuned import TunedEntry
from opmark.store.location import StoreLocation, address, server
from opmark.store.protocol import Database, NoteKind
from opmark.store.record_codec import (
    DECODING_ERRORS,
    Damaged,
    case_row,
    encoded,
    figures_from,
    from_row,
    plain_body,
    planned_load,
    read_figures,
    storable,
    storable_json,
    to_row,
)
from opmark.store.sqlite import Sqlite
from opmark.store.tables import (
    BENCH_CASE,
    ENVIRONMENT,
    FINDING,
    IDENTITY,
    META,
    METADATA,
    OUTCOMES,
    RECORD,
    RUN,
    RUN_NOTE,
    TUNED_ENTRY,
    VERSION,
    add_identity,
    complete,
    make_tables,
    upgrade,
)
from opmark.units import count_noun

_AT_ONCE = 500
"""Ids in one statement, which databases limit."""
_COLUMNS_OF_RUN = tuple(column.name for column in RUN.c if column.name != "number")
_FIGURE = (RECORD.c.run_id, RECORD.c.case_id, RECORD.c.op, RECORD.c.backend, RECORD.c.implementation,
           RECORD.c.threads, RECORD.c.process, RECORD.c.status, RECORD.c.environment_id, RECORD.c.started)  # fmt: skip
"""Columns of the fields of a Figure that belong to its record, in their order."""
_CASE = select(BENCH_CASE.c.id, BENCH_CASE.c.op, BENCH_CASE.c.phase, BENCH_CASE.c.params, BENCH_CASE.c.wrt)
_params = msgspec.json.Decoder(dict[str, Any])
_wrt = msgspec.json.Decoder(tuple[str, ...])
_body = msgspec.json.Decoder(HeadBody)
_tuned = msgspec.json.Decoder(TunedEntry)
_T = TypeVar("_T")
_RUN_INDEXES = (
    f"SELECT name FROM pragma_index_list('record') WHERE name IN ('sqlite_autoindex_record_1', '{OUTCOMES.name}')"
)
"""The names of the indexes of SQLite that begin with the run."""
_RUN_IN_TABLE: ColumnElement[str] = literal_column(
    "substr(record.started, 1, 0) || record.run_id", RECORD.c.run_id.type
)
"""The run of a record as its row in the table has it: no index has `started`, so none is read instead of the table."""
log = logging.getLogger("opmark.store")


class SqlStore:
    def __init__(self, database: Database, *, create: bool, in_place: bool = False) -> None:
        """Open the store; with `create`, create it if there is none. `in_place`: upgrade an older version in place even
        if it is only read."""
        self.database = database
        self.identity: str | None = None
        """Identity of this store; None while there are no tables, or if it was created without one."""
        self._in_place = create or in_place
        self._ready = False
        """Whether the tables are known to exist."""
        self.copied = False
        """Whether this is a copy of an older store, for reading."""
        self._cases: set[str] = set()
        """Ids of cases that are known to be stored."""
        self.say: Callable[[str], None] = log.warning
        """Called with what is damaged and was left out by a reader."""
        self._damaged: set[tuple[str, str]] = set()
        """Runs and tasks of records that were found damaged."""
        self._well_indexed: dict[str, bool] = {}
        """By run, whether every index finds the same number of its records."""
        try:
            if database.exists():
                with self._explain_errors("open"):
                    database.check(create=create)
                    self._check(create=create)
            elif not create:
                raise self._missing_error()
            if create:
                self.database.try_to_write()
            if create and self._ready:
                with self.writing():
                    pass  # fail now, not after an hour of measuring; a file is created by the first write
        except StoreError:
            self.close()
            raise

    def begin(self, run: Run) -> None:
        row = run_row(run)
        with self.writing() as connection:
            connection.execute(insert(RUN), row)
            if run.description:
                note = _note(run.id, "description", run.description) | {"noted": run.started}
                connection.execute(insert(RUN_NOTE), note)

    def add_environment(self, environment: Environment) -> None:
        row = {"id": environment.id, "facts": storable_json(encoded(environment.facts).decode())}
        with self.writing() as connection:
            connection.execute(self.database.insert_new(ENVIRONMENT), row)

    def append(self, run_id: str, record: Record) -> None:
        self.extend(run_id, [record])

    def extend(self, run_id: str, records: Sequence[Record]) -> int:
        cases = {r.task.case.id: r.task.case for r in records if r.task.case.id not in self._cases}
        return self.extend_packed(
            [case_row(case) for case in cases.values()], [to_row(run_id, record) for record in records]
        )

    def extend_packed(self, cases: list[dict[str, Any]], records: list[dict[str, Any]]) -> int:
        """Add rows of the tables `bench_case` and `record`, and return how many records were new."""
        if not records:
            return 0
        missing = [row for row in cases if row["id"] not in self._cases]
        again = self._damaged & {(row["run_id"], row["task_id"]) for row in records}
        with self.writing() as connection:
            if missing:
                self.add_cases(connection, missing)
            for run, task in again:  # nobody can read it, so that nothing is lost when a resumed run replaces it
                connection.execute(delete(RECORD).where(RECORD.c.run_id == run, RECORD.c.task_id == task))
            new = self.add_records(connection, records)
        self._cases |= {row["id"] for row in missing}
        self._damaged -= again
        return new

    def add_cases(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        """Add cases in the order of their ids, so that two writers of the same cases cannot deadlock."""
        rows.sort(key=lambda row: row["id"])
        connection.execute(self.database.insert_new(BENCH_CASE), rows)

    def add_records(self, connection: Connection, rows: list[dict[str, Any]]) -> int:
        """Add records, and return how many were new."""
        statement = self.database.insert_new(RECORD).execution_options(preserve_rowcount=True)
        return connection.execute(statement, rows).rowcount

    def note(self, run_id: str, kind: NoteKind, text: str, noted: str | None = None) -> None:
        """Set the label or description of a run. `noted` is the time, if not now."""
        row = _note(run_id, kind, text)
        with self.writing() as connection:
            connection.execute(insert(RUN_NOTE), row | ({"noted": noted} if noted else {}))

    def runs(self, limit: int | None = None) -> list[Run]:
        # By start: a run of another machine may have been added long after it began.
        query = select(RUN).order_by(RUN.c.started.desc(), RUN.c.number.desc()).limit(limit)
        notes = select(RUN_NOTE.c.run_id, RUN_NOTE.c.kind, RUN_NOTE.c.text).order_by(RUN_NOTE.c.number)
        with self.reading() as connection:
            notes_by_run: dict[str, dict[str, str]] = {}
            for run_id, kind, text in connection.execute(notes):
                notes_by_run.setdefault(run_id, {})[kind] = text
            found = connection.execute(query).mappings().all()
        plain = ({name: row[name] for name in _COLUMNS_OF_RUN} for row in found)
        return [Run(**{**row, **notes_by_run.get(row["id"], {})}) for row in plain]

    def records(self, run_id: str) -> list[Record]:
        query = select(RECORD.c.run_id, RECORD.c.task_id, RECORD.c.body, RECORD.c.samples).order_by(RECORD.c.number)
        with self.reading() as connection:
            query = query.where(self.run_column(connection, run_id) == run_id)
            return self.decode_rows(connection.execute(query), lambda row: from_row(row.body, row.samples))

    def run_column(self, connection: Connection, *run_ids: str) -> ColumnElement[str]:
        """Return the column by which the records of runs are found. A flipped bit in an index of SQLite hides records
        without an error. So two indexes count the records of each run, once while the store is open; where they count
        differently, that is said, and the table itself is searched."""
        if self.database.shared:
            return RECORD.c.run_id
        for group in _parts([run_id for run_id in run_ids if run_id not in self._well_indexed]):
            self._compare_indexes(connection, group)
        return RECORD.c.run_id if all(self._well_indexed[run_id] for run_id in run_ids) else _RUN_IN_TABLE

    def _compare_indexes(self, connection: Connection, run_ids: Sequence[str]) -> None:
        names = connection.exec_driver_sql(_RUN_INDEXES).scalars().all()
        marks = ", ".join("?" * len(run_ids))
        count = f"SELECT run_id, count(*) FROM record INDEXED BY {{}} WHERE run_id IN ({marks}) GROUP BY run_id"
        counts = [
            {row[0]: row[1] for row in connection.exec_driver_sql(count.format(name), tuple(run_ids))} for name in names
        ]
        for run_id in run_ids:
            found = {by_run.get(run_id, 0) for by_run in counts}
            self._well_indexed[run_id] = len(found) <= 1
            if not self._well_indexed[run_id]:
                self.say(
                    f"{self.database.name}: an index is damaged: it counts {min(found)} records of run {run_id}, "
                    f"another {max(found)}; the table itself was read\n"
                    f"hint: `sqlite3 {self.database.name} REINDEX` makes it anew"
                )

    def decode_rows(self, rows: Iterable[Any], decode: Callable[[Any], _T]) -> list[_T]:
        """Return the decoded rows of the table `record`, which have `run_id` and `task_id`. A damaged one is left out,
        and said once."""
        found: list[_T] = []
        damaged: dict[tuple[str, str], Exception] = {}
        for row in rows:
            try:
                found.append(decode(row))
            except DECODING_ERRORS as error:
                damaged[row.run_id, row.task_id] = error
        new = [key for key in damaged if key not in self._damaged]
        if new:
            self._damaged.update(new)
            run, task = new[0]
            self.say(
                f"{self.database.name}: {count_noun(len(new), 'damaged record')} left out; the first is task {task} of "
                f"run {run}: {damaged[new[0]]}\nhint: the command of that run with --resume measures it again; "
                f"`opmark merge {self.database.name} --db NEW.db` copies what can be read into a new store"
            )
        return found

    def figures(self, *, runs: Sequence[str] | None = None, case: str | None = None) -> list[Figure]:
        # Only the body says under which load a record without figures was to be measured.
        body = sql_case((RECORD.c.figures == "[]", RECORD.c.body), else_=None).label("planned")
        query = select(*_FIGURE, RECORD.c.figures, body, RECORD.c.task_id).order_by(RECORD.c.number)
        if case is not None:
            query = query.where(RECORD.c.case_id == case)
        groups: list[Sequence[str] | None] = [None] if runs is None else list(_parts(runs))
        found: list[Figure] = []
        with self.reading() as connection:
            for group in groups:
                some = query if group is None else query.where(self.run_column(connection, *group).in_(group))
                rows = connection.execute(some).all()
                for figures in self.decode_rows(rows, _decode_figures):
                    found += figures
        return found

    def cases(self, ids: Iterable[str]) -> dict[str, Case]:
        found: dict[str, Case] = {}
        with self.reading() as connection:
            for group in _parts(list(ids)):
                for key, *rest in connection.execute(_CASE.where(BENCH_CASE.c.id.in_(group))).all():
                    op, phase, params, wrt = rest
                    found[key] = Case(key, op, _params.decode(params), phase, wrt=_wrt.decode(wrt))
        return found

    def counts(self, run_id: str) -> dict[str, int]:
        with self.reading() as connection:
            of_run = self.run_column(connection, run_id) == run_id
            first = select(func.min(RECORD.c.number)).where(of_run).group_by(RECORD.c.case_id)
            query = select(RECORD.c.case_id, RECORD.c.body, RECORD.c.run_id, RECORD.c.task_id)
            rows = connection.execute(query.where(RECORD.c.number.in_(first))).all()
        found = self.decode_rows(rows, lambda row: (row.case_id, _body.decode(plain_body(row.body)).task.case.count))
        return {case: count for case, count in found if count > 1}

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]:
        found: dict[str, Environment] = {}
        with self.reading() as connection:
            for group in _parts(list(ids)):
                for key, facts in connection.execute(select(ENVIRONMENT).where(ENVIRONMENT.c.id.in_(group))):
                    found[key] = Environment(key, msgspec.json.decode(facts))
        return found

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        text = encoded(body).decode()
        row = {"kind": kind, "chip": storable(chip), "started": started, "body": text}
        with self.writing() as connection:
            connection.execute(insert(FINDING), row)

    def kept(self, kind: str, chip: str) -> Any:
        which = (FINDING.c.kind == kind) & (FINDING.c.chip == storable(chip))
        newest = (FINDING.c.started.desc(), FINDING.c.number.desc())
        query = select(FINDING).where(which).order_by(*newest)
        with self.reading() as connection:
            found = (self._finding(row) for row in connection.execute(query))
            return next((finding.body for finding in found if finding), None)

    def findings(self) -> list[MachineFinding]:
        with self.reading() as connection:
            rows = connection.execute(select(FINDING).order_by(FINDING.c.number)).all()
        return [finding for row in rows if (finding := self._finding(row))]

    def _finding(self, row: Any) -> MachineFinding | None:
        """Return a finding; None if it is damaged, which is said."""
        try:
            return MachineFinding(row.kind, row.chip, row.started, msgspec.json.decode(row.body))
        except DECODING_ERRORS as error:
            self.say(f"{self.database.name}: damaged finding left out: {row.kind} of {row.chip}: {error}")
            return None

    def add_tuned(self, entries: Sequence[TunedEntry]) -> int:
        rows = [tuned_row(entry) for entry in entries]
        with self.writing() as connection:
            return self.add_tuned_rows(connection, rows)

    def add_tuned_rows(self, connection: Connection, rows: list[dict[str, Any]]) -> int:
        """Add rows of the table `tuned_entry`, and return how many were new."""
        if not rows:
            return 0
        rows.sort(key=lambda row: row["id"])  # as all writers do, so that none waits for another
        statement = self.database.insert_new(TUNED_ENTRY).execution_options(preserve_rowcount=True)
        return connection.execute(statement, rows).rowcount

    def tuned(self, op: str | None = None, backend: str | None = None, case: str | None = None) -> list[TunedEntry]:
        query = select(TUNED_ENTRY.c.number, TUNED_ENTRY.c.body).order_by(TUNED_ENTRY.c.number)
        if op is not None:
            query = query.where(TUNED_ENTRY.c.op == storable(op))
        if backend is not None:
            query = query.where(TUNED_ENTRY.c.backend == storable(backend))
        if case is not None:
            query = query.where(TUNED_ENTRY.c.case_id == case)
        with self.reading() as connection:
            rows = connection.execute(query).all()
        found = []
        for row in rows:
            try:
                found.append(_tuned.decode(row.body))
            except DECODING_ERRORS as error:
                self.say(f"{self.database.name}: damaged result of a tuning left out: number {row.number}: {error}")
        return found

    def remove(self, run_ids: Sequence[str]) -> None:
        with self.writing() as connection:
            for group in _parts(run_ids):
                connection.execute(delete(RUN_NOTE).where(RUN_NOTE.c.run_id.in_(group)))
                connection.execute(delete(RECORD).where(self.run_column(connection, *group).in_(group)))
                connection.execute(delete(RUN).where(RUN.c.id.in_(group)))

    def close(self) -> None:
        self.database.close()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._explain_errors("write to"):
            if self.copied:
                raise StoreError(f"{self.database.name}: was opened for reading", "this is a defect of opmark")
            if not self._ready:
                self._create()
            with self.database.engine.execution_options(writes=True).begin() as connection:
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._explain_errors("read"):
            if not self._ready:
                self._look_again()
            with self.database.engine.connect() as connection:
                yield connection

    @contextmanager
    def _explain_errors(self, doing: str) -> Iterator[None]:
        """Turn errors of the driver and damaged data into StoreError."""
        try:
            yield
        except DBAPIError as error:
            raise self.database.explain(doing, error) from None
        except (Damaged, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise StoreError(
                f"{self.database.name}: cannot {doing} the store: something in it is damaged: {error}",
                "nothing was changed; `opmark query` reads what does not need that",
            ) from None

    def _look_again(self) -> None:
        """Check again for a store that did not exist before: another process may have created it."""
        if not self.database.exists():
            raise self._missing_error()
        self._check(create=False)

    def _create(self) -> None:
        self.database.before_tables()
        make_tables(self.database)
        self._ready = True
        self.identity = self.read_meta(IDENTITY)

    def read_meta(self, key: str) -> str | None:
        with self.database.engine.connect() as connection:
            return connection.execute(select(META.c.value).where(META.c.key == key)).scalar()

    def _check(self, *, create: bool) -> None:
        names = set(inspect(self.database.engine).get_table_names())
        if META.name not in names:
            self._check_empty(names, create=create)
            return
        if views := sorted(METADATA.tables.keys() & set(inspect(self.database.engine).get_view_names())):
            raise StoreError(
                f"{self.database.name}: is not as opmark makes a store: expected a table `{views[0]}`, got a view",
                "a view can have any content, and no end: name another store with --db",
            )
        text = self.read_meta("version")
        if text is None or not text.isdecimal():
            raise StoreError(f"{self.database.name}: does not say of which version it is", "name another with --db")
        found = int(text)
        if found > VERSION:
            raise StoreError(
                f"{self.database.name}: is a store of version {found}; this opmark reads up to {VERSION}",
                "upgrade opmark",
            )
        if found < VERSION:
            self._upgrade(found)
        self._ready = True
        self.identity = self.read_meta(IDENTITY)
        if create and self.identity is None:
            add_identity(self.database)
            self.identity = self.read_meta(IDENTITY)
        if create:
            complete(self.database)

    def _check_empty(self, names: set[str], *, create: bool) -> None:
        """Create the tables with `create`; raise StoreError otherwise, or if a file belongs to another program."""
        others = sorted(names)[:4]
        if others and not self.database.shared:
            raise StoreError(
                f"{self.database.name}: is a database, but not one of opmark (it has {', '.join(others)})",
                "name another file with --db",
            )
        if not create:
            raise self._missing_error()
        self._create()  # an empty file, or one that another process is creating

    def _upgrade(self, found: int) -> None:
        """Upgrade the store for a writer; a reader gets an upgraded copy, because reading changes nothing."""
        if self._in_place:
            upgrade(self.database)
            return
        copy = self.database.upgraded_copy()
        if copy is None:
            raise StoreError(
                f"{self.database.name}: is a store of version {found}; this opmark reads {VERSION}",
                "`opmark runs --upgrade` upgrades it, as does whatever writes to it",
            )
        self.database.close()
        self.database, self.copied = copy, True
        upgrade(copy)

    def _missing_error(self) -> StoreError:
        return StoreError(
            f"{self.database.name}: there is no store yet", "`opmark run` makes one, or name another with --db"
        )


def run_row(run: Run) -> dict[str, Any]:
    """Return the columns of the table `run` except its number."""
    found = {name: getattr(run, name) for name in _COLUMNS_OF_RUN}
    return {name: storable(value) if isinstance(value, str) else value for name, value in found.items()}


def tuned_row(entry: TunedEntry) -> dict[str, Any]:
    """Return the columns of the table `tuned_entry` except its number."""
    return {
        "id": entry.id, "op": storable(entry.op), "case_id": entry.case, "backend": storable(entry.backend),
        "target_id": entry.target.id, "made": entry.made, "body": storable_json(encoded(entry).decode()),
    }  # fmt: skip


def _note(run_id: str, kind: NoteKind, text: str) -> dict[str, str]:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return {"run_id": run_id, "kind": kind, "text": storable(text), "noted": now}


def _decode_figures(row: Any) -> list[Figure]:
    *who, figures, planned, _ = row
    return figures_from(tuple(who), read_figures(figures), planned_load(planned) if planned else "")


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]


def open_sql(location: StoreLocation = None, *, create: bool = False) -> SqlStore:
    where = address(location)
    if isinstance(where, Path):
        return SqlStore(Sqlite(where), create=create)
    checked = server(where)
    from opmark.store.postgresql import Postgresql

    return SqlStore(Postgresql(checked), create=create)


def open_read_only(location: StoreLocation = None) -> SqlStore:
    """Open a store that cannot be written; for SQLite the database itself ensures that. Connections are closed with the
    last reference, because others may still read when another store replaces it."""
    store = open_sql(location)
    engine = store.database.engine
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA query_only=ON")

        engine.dispose()  # connections that were opened before
    finalize(store, store.database.close)
    return store
