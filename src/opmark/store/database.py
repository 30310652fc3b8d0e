"""What the two kinds of database differ in: how one is reached, made ready and explained."""

from __future__ import annotations

from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import DBAPIError

from opmark.errors import StoreError


class Lost(StoreError):
    """The store cannot be written just now: its server is gone, its disk is full. What was to be written may be
    written later."""


class Replaced(Lost):
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
