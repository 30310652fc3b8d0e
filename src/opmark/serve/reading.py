"""What pages read: the store, with the runs that were looked at last kept in memory.

A store is append-only: what was read of a run stays true, and only what was written since has to be read.
"""

from __future__ import annotations

from opmark.api.common import PathLike
from opmark.api.looking import look_at
from opmark.schema import Run
from opmark.schema.item import Looked
from opmark.store.find import find_run
from opmark.store.open import open_sql


class Reader:
    def __init__(self, db: PathLike | None = None) -> None:
        self.db = db
        self.store = open_sql(db)

    def runs(self) -> list[Run]:
        """Those begun last first."""
        return self.store.runs()

    def run(self, name: str) -> Run:
        """By its id, the beginning of it, or its label."""
        return find_run(self.store, name)

    def looked(self, run: Run) -> Looked:
        return look_at(self.store, run)

    def close(self) -> None:
        self.store.close()
