"""Tables and views of the store, and the upgrade of older versions.

Tables hold facts and raw samples; every rate is computed when it is read. The one exception is `figures`, the medians
of the samples, so that a comparison of thousands of cases or a history of years need not decompress them all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    delete,
    insert,
    inspect,
    select,
    text,
    update,
)

from opmark.errors import StoreError
from opmark.store.protocol import Database
from opmark.store.record_codec import DAMAGED_FIGURES, DECODING_ERRORS, case_row, old_record, to_row

VERSION = 4
"""Version of this layout. A store of an older version is upgraded by its first writer, a newer one is refused.

1: runs, environments, records. 2: findings about machines. 3: bodies packed, figures, cases, notes, views.
4: tuned configurations.
"""

METADATA = MetaData()


class Packed(LargeBinary):
    """Binary data as the driver returns it. It may be text if its writer began before an upgrade."""

    def result_processor(self, dialect: Any, coltype: Any) -> None:
        return None


IDENTITY = "store"
"""Key of the identity of a store, which stays the same wherever it moves."""
_VIEWS = "views"
"""Key of a hash of the views, by which a writer finds older ones."""

META = Table("opmark_meta", METADATA, Column("key", String(32), primary_key=True), Column("value", Text))

RUN = Table(
    "run",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(48), nullable=False, unique=True),
    Column("started", String(40), nullable=False),
    Column("plan", String(16), nullable=False),
    Column("tasks", Integer, nullable=False),
    Column("label", Text, nullable=False),
    Column("command", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("session", Text, nullable=False, server_default=""),
    Column("revision", Text, nullable=False, server_default=""),
)

RUN_NOTE = Table(
    "run_note",
    METADATA,
    # Labels and descriptions that were set later. The newest of a kind counts.
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("run_id", String(48), ForeignKey("run.id"), nullable=False, index=True),
    Column("kind", String(16), nullable=False),
    Column("text", Text, nullable=False),
    Column("noted", String(40), nullable=False),
)

ENVIRONMENT = Table(
    "environment",
    METADATA,
    Column("id", String(16), primary_key=True),
    Column("facts", Text, nullable=False),
)

BENCH_CASE = Table(
    "bench_case",
    METADATA,
    # A case by its id; its parameters as JSON.
    Column("id", String(16), primary_key=True),
    Column("op", Text, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("params", Text, nullable=False),
    Column("wrt", Text, nullable=False),
)

RECORD = Table(
    "record",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("run_id", String(48), ForeignKey("run.id"), nullable=False),
    Column("task_id", String(16), nullable=False),
    Column("case_id", String(16), nullable=False),
    Column("op", Text, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("backend", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("environment_id", String(16), nullable=False),
    Column("started", String(40), nullable=False),
    Column("duration", Float, nullable=False),
    Column("body", Packed, nullable=False),
    # The record as JSON, without the samples; packed.
    Column("samples", Packed, nullable=False),
    # The samples of its measurements: float64, bytes grouped by significance, compressed (`pack_samples`).
    Column("implementation", Text, nullable=False, server_default=""),
    Column("threads", Integer, nullable=False, server_default="0"),
    Column("process", Integer, nullable=False, server_default="0"),
    Column("reason", Text, nullable=False, server_default=""),
    Column("figures", Text, nullable=False, server_default="[]"),
    # For each measurement: [quantity, cache, timer, calls, samples, median, low, high, cycles, [cautions], checksum].
    # A task has one record in a run, even if two processes resume the run at once.
    UniqueConstraint("run_id", "task_id"),
)

FINDING = Table(
    "finding",
    METADATA,
    # Findings about a machine: its peaks, its noise. The newest of a kind and a chip counts.
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("kind", String(32), nullable=False),
    Column("chip", Text, nullable=False),
    Column("started", String(40), nullable=False),
    Column("body", Text, nullable=False),
)

TUNED_ENTRY = Table(
    "tuned_entry",
    METADATA,
    # Results of tunings. The newest of a case, a backend and a target counts; the body is a TunedEntry as JSON.
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(16), nullable=False, unique=True),
    Column("op", Text, nullable=False),
    Column("case_id", String(16), nullable=False),
    Column("backend", Text, nullable=False),
    Column("target_id", String(16), nullable=False),
    Column("made", String(40), nullable=False),
    Column("body", Text, nullable=False),
)

Index("tuned_case", TUNED_ENTRY.c.op, TUNED_ENTRY.c.backend)
Index("record_case", RECORD.c.case_id, RECORD.c.backend)
OUTCOMES = Index("record_outcome", RECORD.c.run_id, RECORD.c.backend, RECORD.c.environment_id, RECORD.c.status)
"""Index from which the statuses of a run are counted. A store without it gets it from its next writer; this does not
change the version."""


_PACKED_VERSION = 3
_ADDED = ((RUN, ("session", "revision")), (RECORD, ("implementation", "threads", "process", "reason", "figures")))
"""Columns that version 3 added."""
PACKED = ("body", "samples", *_ADDED[1][1])
"""Columns of a record that older versions lack or write differently."""
_REDUNDANT = "record_run"
"""Old index that is a prefix of another one."""

_AT_ONCE = 500
_SOME = "SELECT number, run_id, body, samples FROM record WHERE number > :last ORDER BY number LIMIT :count"


def make_tables(database: Database) -> None:
    with database.engine.execution_options(writes=True).begin() as connection:
        database.lock(connection)
        if _version(connection, database) is None:
            if database.shared:
                refuse_taken(connection, database.name, METADATA.tables)
            METADATA.create_all(connection)
            connection.execute(database.insert_new(META), {"key": "version", "value": str(VERSION)})
            _make_views(connection)
        _add_identity(connection, database)


def add_identity(database: Database) -> None:
    """Give a store of this version an identity if it was created before stores had one."""
    with database.engine.execution_options(writes=True).begin() as connection:
        _add_identity(connection, database)


def _add_identity(connection: Connection, database: Database) -> None:
    connection.execute(database.insert_new(META), {"key": IDENTITY, "value": uuid4().hex})


def complete(database: Database) -> None:
    """Add the index and the newest views to a store of this version that was created without them. On a server only the
    owner of the tables can; for others counting just takes longer, and the views show damaged figures."""
    views = create_views(database.engine.dialect.name)
    with database.engine.connect() as connection:
        stale = _view_digest(views) != connection.execute(select(META.c.value).where(META.c.key == _VIEWS)).scalar()
        missing = (stale or not _has_index(connection)) and database.owns(connection, RECORD)
    if missing:
        with database.engine.execution_options(writes=True).begin() as connection:
            database.lock(connection)
            OUTCOMES.create(connection, checkfirst=True)  # another process may have been quicker
            _make_views(connection)


def _has_index(connection: Connection) -> bool:
    return any(index["name"] == OUTCOMES.name for index in inspect(connection).get_indexes(RECORD.name))


def upgrade(database: Database) -> None:
    with database.engine.execution_options(writes=True).begin() as connection:
        database.lock(connection)
        found = _version(connection, database) or VERSION
        if found < VERSION:  # another process may have been quicker
            if found < _PACKED_VERSION:
                _add_columns(connection)
            METADATA.create_all(connection)
            if found < _PACKED_VERSION:
                _pack_records(connection, database)
            connection.execute(text(f"DROP INDEX IF EXISTS {_REDUNDANT}"))
            OUTCOMES.create(connection, checkfirst=True)
            _make_views(connection)
            connection.execute(update(META).where(META.c.key == "version").values(value=str(VERSION)))
            _add_identity(connection, database)


def _version(connection: Connection, database: Database) -> int | None:
    """Return the version of the store; None if there are no tables yet."""
    if not database.engine.dialect.has_table(connection, META.name):
        return None
    return int(connection.execute(select(META.c.value).where(META.c.key == "version")).scalar_one())


def _make_views(connection: Connection) -> None:
    views = create_views(connection.dialect.name)
    for statement in views:
        connection.exec_driver_sql(statement)
    connection.execute(delete(META).where(META.c.key == _VIEWS))
    connection.execute(insert(META), {"key": _VIEWS, "value": _view_digest(views)})


def _view_digest(views: list[str]) -> str:
    return hashlib.sha256("\n".join(views).encode()).hexdigest()[:16]


def _add_columns(connection: Connection) -> None:
    for table, names in _ADDED:
        for name in names:
            column = table.c[name]
            kind = column.type.compile(connection.dialect)
            default = column.server_default.arg  # type: ignore[union-attr]
            connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {name} {kind} NOT NULL DEFAULT '{default}'"))


def _pack_records(connection: Connection, database: Database) -> None:
    """Compress the bodies, which were text, and fill the new columns from them. A damaged record stays as it is:
    whoever reads it says so."""
    last = 0
    while some := connection.execute(text(_SOME), {"last": last, "count": _AT_ONCE}).all():
        last = some[-1].number
        records = []
        for row in some:
            with suppress(*DECODING_ERRORS):
                records.append((row, old_record(row.body, row.samples)))
        if not records:
            continue
        cases = {record.task.case.id: record.task.case for _, record in records}
        connection.execute(database.insert_new(BENCH_CASE), [case_row(case) for case in cases.values()])
        packed = [{**to_row(row.run_id, record), "this": row.number} for row, record in records]
        changed: dict[str, Any] = {name: bindparam(name) for name in PACKED}
        connection.execute(
            update(RECORD).where(RECORD.c.number == bindparam("this")).values(changed),
            [{name: row[name] for name in ("this", *changed)} for row in packed],
        )


# The views for `opmark query`. Their columns are stable (docs/store.md); the tables are not.

# How each database looks into JSON: (an item of a list, a fact by its name, the rows of the list of figures).
_WORDS = {
    "sqlite": {
        "each": "LEFT JOIN json_each({figures}) AS m",
        "text": "json_extract(m.value, '$[{0}]')",
        "number": "json_extract(m.value, '$[{0}]')",
        "whole": "json_extract(m.value, '$[{0}]')",
        "fact": "json_extract(e.facts, '$.{0}')",
    },
    "postgresql": {
        # The last element is the checksum of the text before it; older figures have none.
        "each": "LEFT JOIN LATERAL (SELECT CASE WHEN f.one ->> 10 IS NULL OR "
        "left(md5(left(f.one::text, -12)), 8) = f.one ->> 10 THEN f.one ELSE "
        f"'{DAMAGED_FIGURES[1:-1]}'::json END AS value "
        "FROM json_array_elements({figures}::json) AS f(one)) AS m ON true",
        "text": "(m.value ->> {0})",
        "number": "(m.value ->> {0})::double precision",
        "whole": "(m.value ->> {0})::bigint",
        "fact": "(e.facts::json ->> '{0}')",
    },
}

# The columns of `figures`, in their order, and how each is read.
_FIGURE = (("quantity", "text"), ("cache", "text"), ("timer", "text"), ("calls", "whole"), ("samples", "whole"),
           ("median", "number"), ("low", "number"), ("high", "number"), ("cycles", "number"),
           ("cautions", "text"))  # fmt: skip
_FACTS = ("machine", "cpu", "gpu", "device", "backend", "python", "torch", "opmark", "system")
_RECORD = ("run_id", "case_id", "op", "phase", "backend", "implementation", "threads", "process", "status", "reason",
           "environment_id", "started", "duration")  # fmt: skip

NAMES = ("runs", "records", "results", "cases", "environments", "findings", "tuned")


# The newest label or description of a run.
_NOTED = (
    "(SELECT n.text FROM run_note n WHERE n.run_id = u.id AND n.kind = '{0}' ORDER BY n.number DESC LIMIT 1)"
)  # fmt: skip


def create_views(dialect: str, check: str = "") -> list[str]:
    """Return the statements that create or replace the views. With `check`, the name of a function that checks figures,
    they are temporary views for one connection: SQLite itself has no checksums."""
    words, figures = _WORDS[dialect], "r.figures"
    if check:  # what is no JSON for SQLite itself becomes NULL, which the function answers, too
        figures = f"{check}(CAST(CASE WHEN json_valid(CAST({figures} AS TEXT)) THEN {figures} END AS BLOB))"
    label = f"coalesce({_NOTED.format('label')}, u.label)"
    record = ", ".join(f"r.{name}" for name in _RECORD)
    joined = "record r JOIN run u ON u.id = r.run_id LEFT JOIN bench_case c ON c.id = r.case_id"
    figure = ", ".join(f"{words[kind].format(place)} AS {name}" for place, (name, kind) in enumerate(_FIGURE))
    facts = ", ".join(f"{words['fact'].format(name)} AS {name}" for name in _FACTS)
    bodies = {
        "runs": f"SELECT u.number, u.id, u.started, {label} AS label, "
        f"coalesce({_NOTED.format('description')}, '') AS description, u.tasks, "
        "(SELECT count(*) FROM record r WHERE r.run_id = u.id) AS records, "
        "u.command, u.version, u.revision, u.session, u.plan FROM run u",
        "records": f"SELECT r.number, {record}, c.params, {label} AS label, u.started AS run_started FROM {joined}",
        "results": f"SELECT r.number, {record}, c.params, {label} AS label, u.started AS run_started, {figure} "
        f"FROM {joined} {words['each'].format(figures=figures)}",
        "cases": "SELECT id, op, phase, params, wrt FROM bench_case",
        "environments": f"SELECT e.id, {facts}, e.facts FROM environment e",
        "findings": "SELECT number, kind, chip, started, body FROM finding",
        "tuned": "SELECT number, id, op, case_id, backend, target_id, made, body FROM tuned_entry",
    }
    if dialect == "postgresql":  # keeps grants and views of others that depend on them
        return [f"CREATE OR REPLACE VIEW {name} AS {bodies[name]}" for name in NAMES]
    if check:
        return [f"CREATE TEMP VIEW {name} AS {bodies[name]}" for name in NAMES]
    dropped = [f"DROP VIEW IF EXISTS {name}" for name in reversed(NAMES)]
    return dropped + [f"CREATE VIEW {name} AS {bodies[name]}" for name in NAMES]


def refuse_taken(connection: Connection, where: str, names: Iterable[str]) -> None:
    """Raise StoreError if other programs use our names, before the first table is created in a shared database."""
    wanted = sorted({*names, *NAMES})
    query = "SELECT relname FROM pg_class WHERE relname = ANY(:names) AND pg_table_is_visible(oid) ORDER BY relname"
    if taken := connection.execute(text(query), {"names": wanted}).scalars().all():
        raise StoreError(
            f"{where}: has something else called {', '.join(taken)}; nothing was made",
            "give opmark a database of its own, or a schema: CREATE SCHEMA opmark, and behind the address "
            "?options=-csearch_path%3Dopmark",
        )
