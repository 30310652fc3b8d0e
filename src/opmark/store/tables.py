"""The tables. Facts and raw samples only: every rate is computed when read.

`figures` is the one exception: medians of the samples beside them, so that a comparison of thousands of cases, or a
history of years, need not inflate them all.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    Column,
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
)

VERSION = 3
"""Of this layout. A store of an older version is upgraded by its first writer, one of a newer version is refused.

1: runs, environments, records. 2: findings about machines. 3: bodies packed, figures, cases, notes, views.
"""

METADATA = MetaData()


class Packed(LargeBinary):
    """As the driver gives it. Beside what is packed there may be texts, of a writer that began before an upgrade."""

    def result_processor(self, dialect: Any, coltype: Any) -> None:
        return None


IDENTITY = "store"
"""The key of what tells one store from all others, wherever it moves."""

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
    # What was said of a run later: `label` or `description`. The newest of a kind is the one that counts.
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
    # The samples of its measurements: float64, their bytes sorted by place, deflated (`pack.pack_samples`).
    Column("implementation", Text, nullable=False, server_default=""),
    Column("threads", Integer, nullable=False, server_default="0"),
    Column("process", Integer, nullable=False, server_default="0"),
    Column("reason", Text, nullable=False, server_default=""),
    Column("figures", Text, nullable=False, server_default="[]"),
    # Of each measurement: [quantity, cache, timer, calls, samples, median, low, high, cycles, [cautions]].
    # A task has one record in a run, also where two processes go on with it at once.
    UniqueConstraint("run_id", "task_id"),
)

FINDING = Table(
    "finding",
    METADATA,
    # What was found out about a machine: its peaks, its noise. The newest of a kind and a chip is the one that counts.
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("kind", String(32), nullable=False),
    Column("chip", Text, nullable=False),
    Column("started", String(40), nullable=False),
    Column("body", Text, nullable=False),
)

Index("record_case", RECORD.c.case_id, RECORD.c.backend)
OUTCOMES = Index("record_outcome", RECORD.c.run_id, RECORD.c.backend, RECORD.c.environment_id, RECORD.c.status)
"""What became of a run is counted from it alone. A store that was made without it gets it from its next writer; one
that has it is of no other version."""
