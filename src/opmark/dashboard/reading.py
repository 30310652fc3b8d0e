"""What pages read: the store, with the runs that were looked at last kept in memory.

A store is append-only: what was read of a run stays true, and only what was written since has to be read. Many threads
ask at once; a lock a run sees to it that one of them reads, and the others find what it read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from sqlalchemy import event

from opmark.api.common import PathLike
from opmark.dashboard.kept import Kept, KeptCases, KeptSummaries, progress
from opmark.dashboard.progress import Progress
from opmark.errors import StoreError, UnknownName
from opmark.schema import Case, Record, Run
from opmark.schema.item import Item, Looked
from opmark.schema.run_summary import RunSummary
from opmark.store.find import find_run
from opmark.store.location import address, shown, there
from opmark.store.open import open_sql
from opmark.store.sql import SqlStore
from opmark.store.whole import records_behind

READ_AHEAD = 3
"""Runs that are read before anybody asks for them."""
FIRST_PAGE = 50
"""Runs of the page that everybody begins at."""


class Reader:
    """`db` may not be there yet: it is looked for whenever something is asked."""

    def __init__(self, db: PathLike | None = None) -> None:
        self.db = db
        self.name = str(shown(db))
        """For messages: without a password."""
        self._lock = Lock()
        self._opened: SqlStore | None = None
        self._file: tuple[int, int] | None = None
        self._kept, self._summaries, self._cases = Kept(), KeptSummaries(), KeptCases()
        self._closing = Event()
        self._ahead: Thread | None = None

    @property
    def there(self) -> bool:
        return there(self.db)

    @property
    def store(self) -> SqlStore:
        """For reading. `StoreError` where there is none; another file of the same name is another store."""
        with self._lock:
            now = _file_number(address(self.db))
            if self._opened is None or now != self._file:
                self._forget()
                self._opened = _read_only(open_sql(self.db))
                self._file = now
            return self._opened

    def runs(self) -> list[Run]:
        """Those begun last first; none where there is no store yet."""
        return self.store.runs() if self.there else []

    def run(self, name: str) -> Run:
        """By its id, the beginning of it, or its label."""
        if not self.runs():
            error = UnknownName("run", name, ())
            error.hint = "the store holds no run yet: `opmark run --suite quick` makes one"
            raise error
        return find_run(self.store, name)

    def summaries(self, runs: Sequence[Run]) -> list[RunSummary]:
        """In the order of the runs."""
        if not runs:
            return []
        store = self.store  # first: another file begins with nothing kept
        return self._summaries.of(store, runs)

    def looked(self, run: Run) -> Looked:
        """As it is now: what was written since the last look is read, and no more."""
        store = self.store
        return self._kept.looked(store, run)

    def progress(self, run: Run) -> Progress:
        return progress(self.store, run)

    def records(self, item: Item) -> list[Record]:
        """Those behind an item, with their samples."""
        return records_behind(self.store, item)

    def cases(self) -> list[tuple[Case, str]]:
        """All that were ever measured, with their parameters as people read them; by operator."""
        if not self.there:
            return []
        store = self.store
        return self._cases.of(store)

    def read_ahead(self) -> None:
        """The newest runs, in a thread of their own, so that the first click is quick."""
        self._ahead = Thread(target=self._read_newest, name="opmark-read-ahead", daemon=True)
        self._ahead.start()

    def close(self) -> None:
        self._closing.set()
        if self._ahead:
            self._ahead.join()
        with self._lock:
            self._forget()

    def _read_newest(self) -> None:
        try:
            known = self.runs()
            self.summaries(known[:FIRST_PAGE])
            for run in known[:READ_AHEAD]:
                if self._closing.is_set():
                    return
                self.looked(run)
            for run in known:
                if self._closing.is_set():
                    return
                self.summaries([run])
        except StoreError:
            return  # whoever asks for a page is told

    def _forget(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None
        self._kept, self._summaries, self._cases = Kept(), KeptSummaries(), KeptCases()


def _file_number(where: str | Path) -> tuple[int, int] | None:
    """What tells a file from another one of the same name; a server has none."""
    if isinstance(where, str):
        return None
    try:
        found = where.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _read_only(store: SqlStore) -> SqlStore:
    """Pages write nothing, whatever happens: SQLite sees to it from here on."""
    engine = store.database.engine
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA query_only=ON")

        engine.dispose()  # those that were opened before
    return store
