"""The interface of a store, and of the databases that it may be in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from opmark.errors import StoreError
from opmark.schema import Case, Environment, Record, Run
from opmark.schema.machine import MachineFinding
from opmark.schema.record import Figure
from opmark.schema.tuned import TunedEntry

if TYPE_CHECKING:  # `opmark --help` loads this file, and needs no database
    from sqlalchemy import Connection, Engine, Table
    from sqlalchemy.exc import DBAPIError

NoteKind = Literal["label", "description"]


class Store(Protocol):
    """An append-only store: records are never changed, and only `remove` deletes them."""

    def begin(self, run: Run) -> None: ...

    def add_environment(self, environment: Environment) -> None: ...

    def append(self, run_id: str, record: Record) -> None:
        """Add a record. A second record of the same task and run is ignored."""

    def extend(self, run_id: str, records: Sequence[Record]) -> int:
        """Add records in one transaction, and return how many were new."""

    def note(self, run_id: str, kind: NoteKind, text: str) -> None:
        """Set the label or the description of a run from now on."""

    def runs(self, limit: int | None = None) -> list[Run]:
        """Return the runs, newest first, with their current labels and descriptions."""

    def records(self, run_id: str) -> list[Record]:
        """Return the records of a run, in the order written."""

    def figures(self, *, runs: Sequence[str] | None = None, case: str | None = None) -> list[Figure]:
        """Return the figures of these runs, of one case, or of one case in these runs, in the order written."""

    def cases(self, ids: Iterable[str]) -> dict[str, Case]:
        """Return cases by id, without tags, sources, foreign words and counts, which belong to records."""

    def counts(self, run_id: str) -> dict[str, int]:
        """Return how often the program that a case comes from runs it, by id of the case; only counts above 1."""

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]: ...

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        """Store a finding about a machine: `peaks` or `noise`."""

    def kept(self, kind: str, chip: str) -> Any:
        """Return the newest finding as plain data; None if there is none."""

    def findings(self) -> list[MachineFinding]:
        """Return all findings, oldest first."""

    def add_tuned(self, entries: Sequence[TunedEntry]) -> int:
        """Store results of tunings, and return how many were new."""

    def tuned(self, op: str | None = None, backend: str | None = None, case: str | None = None) -> list[TunedEntry]:
        """Return the results of tunings in the order written: of an operator, a backend, and the case with this id, as
        far as they are named."""

    def remove(self, run_ids: Sequence[str]) -> None:
        """Delete runs with their records in one transaction. Findings about machines and results of tunings stay."""

    def close(self) -> None: ...


class StoreUnreachable(StoreError):
    """The store cannot be written now, because its server is gone or its disk is full; a later attempt may succeed."""


class StoreReplaced(StoreUnreachable):
    """The file of the store was moved, removed or replaced. A process that has it open can still read it."""


class Database(Protocol):
    """The differences between SQLite and PostgreSQL: how to open, prepare and lock a database, and explain its
    errors."""

    name: str
    """Name for messages, without a password."""
    engine: Engine
    shared: bool
    """Whether the database may hold tables of other programs."""

    def exists(self) -> bool:
        """Return whether there is something to open."""

    def check(self, *, create: bool) -> None:
        """Raise StoreError if the database cannot hold a store or, with `create`, cannot be written."""

    def try_to_write(self) -> None:
        """Raise StoreError if a store could not be created, or its tables could not be written."""

    def before_tables(self) -> None:
        """Prepare the database for its first table."""

    def lock(self, connection: Connection) -> None:
        """Lock the store until the end of a writing transaction, so that nobody else creates or upgrades tables."""

    def owns(self, connection: Connection, table: Table) -> bool:
        """Return whether this user may alter a table, and not only its rows."""

    def insert_new(self, table: Table) -> Any:
        """Return an insert statement that ignores existing rows."""

    def upgraded_copy(self) -> Database | None:
        """Return a copy of an older store for a reader, who must not change it; None if copies are not possible."""

    def explain(self, doing: str, error: DBAPIError) -> StoreError: ...

    def close(self) -> None: ...
