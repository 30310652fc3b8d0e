"""The store: where records are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from opmark.errors import StoreError
from opmark.schema import Case, Environment, Record, Run
from opmark.schema.machine import MachineFinding
from opmark.schema.record import Figure

if TYPE_CHECKING:  # `opmark --help` loads this file, and needs no database
    from sqlalchemy import Connection, Engine, Table
    from sqlalchemy.exc import DBAPIError

Noted = Literal["label", "description"]


class Store(Protocol):
    """Append-only: what was written is never changed, and removed by `remove` alone."""

    def begin(self, run: Run) -> None: ...

    def add_environment(self, environment: Environment) -> None: ...

    def append(self, run_id: str, record: Record) -> None:
        """One record a task: a second one of the same run is left out."""

    def extend(self, run_id: str, records: Sequence[Record]) -> int:
        """Many at once, all or none of them; how many were new."""

    def note(self, run_id: str, kind: Noted, text: str) -> None:
        """Set the label or the description of a run from now on."""

    def runs(self, limit: int | None = None) -> list[Run]:
        """The runs begun last come first, with the label and the description that were noted last."""

    def records(self, run_id: str) -> list[Record]:
        """The records of a run, in the order written."""

    def figures(self, *, runs: Sequence[str] | None = None, case: str | None = None) -> list[Figure]:
        """The figures of these runs, or of one case, or of one case in these runs; in the order written."""

    def cases(self, ids: Iterable[str]) -> dict[str, Case]:
        """Cases by id, without tags and sources, which belong to the record."""

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]: ...

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        """Keep what was found out about a machine: `peaks` or `noise`."""

    def kept(self, kind: str, chip: str) -> Any:
        """The finding of the latest `started`, as plain data; None if there is none."""

    def findings(self) -> list[MachineFinding]:
        """All findings that were ever kept, oldest first."""

    def remove(self, run_ids: Sequence[str]) -> None:
        """These runs with their records, for good, all or none of them. What was found out of machines stays."""

    def close(self) -> None: ...


# What the two kinds of database differ in: how one is reached, made ready and explained.


class StoreUnreachable(StoreError):
    """The store cannot be written just now: its server is gone, its disk is full. What was to be written may be
    written later."""


class Replaced(StoreUnreachable):
    """Another file, or none, is where the store was. What was written to it can still be read by who has it open."""


class Database(Protocol):
    name: str
    """As messages call it; never with a password."""
    engine: Engine
    shared: bool
    """Whether tables of others may stand beside ours."""

    def exists(self) -> bool:
        """Whether there is something to open."""

    def check(self, *, create: bool) -> None:
        """StoreError where the database is of a kind that cannot hold a store, or, to `create`, cannot be written."""

    def try_to_write(self) -> None:
        """StoreError where a store could not be made, or its tables not be written."""

    def before_tables(self) -> None:
        """What the database needs before the first table."""

    def lock(self, connection: Connection) -> None:
        """In a transaction that writes: nobody else makes or upgrades tables until its end."""

    def owns(self, connection: Connection, table: Table) -> bool:
        """Whether this user may change a table itself, and not only what is in it."""

    def insert_new(self, table: Table) -> Any:
        """An insert that leaves out what is there already."""

    def upgraded_copy(self) -> Database | None:
        """A copy for somebody who only reads an older store and must not change it; None where there can be none."""

    def explain(self, doing: str, error: DBAPIError) -> StoreError: ...

    def close(self) -> None: ...
