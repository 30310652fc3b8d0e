"""Reads the store for pages, with the runs that were requested last cached in memory.

A store is append-only: what was read stays true, and only records written since have to be read. Many threads read at
once; a lock for each run makes one of them read while the others wait for its result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from opmark.analysis.rows import Row, RunView, rows_of_records
from opmark.api.items import case_view
from opmark.dashboard.items import ItemRequest, RunItems, RunProgress, select_items, select_stored_items
from opmark.dashboard.navigation import shorten
from opmark.dashboard.run_cache import CaseListCache, RunCache, SummaryAtMark, SummaryCache, read_progress
from opmark.errors import OpmarkError, StoreError, UnknownName
from opmark.schema import Case, Run
from opmark.schema.options import PathLike
from opmark.schema.run import RunSummary
from opmark.store.changes import LatestTry, RecordPosition, last_finding, latest_tries
from opmark.store.location import address, display_address, store_exists
from opmark.store.records import records_of_task
from opmark.store.runs import find_among, with_backend
from opmark.store.sql import SqlStore, open_read_only

READ_AHEAD = 3
"""Number of runs that are read ahead after the start."""
_QUIET, _PAUSE = 0.5, 0.02
"""Seconds without a request until something is read ahead, and seconds between two looks at that."""
FIRST_PAGE = 50
"""Number of runs on the start page."""


class Reader:
    """Reads one store. `db` need not exist yet: every request looks for it."""

    def __init__(self, db: PathLike | None = None) -> None:
        self.db = db
        self.name = str(display_address(db))
        """Address of the store for messages, without a password."""
        self._lock = Lock()
        self._turn = Lock()
        self._opened: SqlStore | None = None
        self._file: tuple[int, ...] | None = None
        self._views, self._summaries, self._cases = RunCache(), SummaryCache(), CaseListCache()
        self._closing = Event()
        self._ahead: Thread | None = None
        self._requests, self._last_answer = 0, time.monotonic()
        self.ahead: list[Callable[[Reader], object]] = []
        """Work that is done ahead after the runs are read."""

    @property
    def exists(self) -> bool:
        return store_exists(self.db)

    @property
    def store(self) -> SqlStore:
        """The store, opened for reading; `StoreError` if there is none.

        It is opened again if the file was replaced by another one. A store of an older version is read from a copy, and
        is opened again after every change."""
        with self._lock:
            where = address(self.db)
            now = _file_state(where, written=self._opened is not None and self._opened.copied)
            if self._opened is None or now != self._file:
                self._forget()
                before = _file_state(where, written=True)  # later changes are noticed at the next request
                self._opened = open_read_only(self.db)
                self._file = before if self._opened.copied else _file_state(where)
            return self._opened

    def runs(self) -> list[Run]:
        """Return all runs, newest first; none if there is no store yet."""
        if not self.exists:
            return []
        known = self.store.runs()
        self._summaries.keep_only({run.id for run in known})
        return known

    def run(self, name: str) -> Run:
        """Return a run by its id, the beginning of its id, or its label."""
        known = self.runs()
        if not known:
            error = UnknownName("run", name, ())
            error.hint = "the store holds no run yet: `opmark run --suite quick` makes one"
            raise error
        return find_among(known, name)

    def summaries(self, runs: Sequence[Run]) -> list[RunSummary]:
        return [one.summary for one in self.summaries_at_marks(runs)]

    def summaries_at_marks(self, runs: Sequence[Run]) -> list[SummaryAtMark]:
        """Return summaries with their marks, which change with every write to a run."""
        if not runs:
            return []
        store = self.store  # first, because opening another file empties the caches
        return self._summaries.get(store, runs)

    def with_backend(self, runs: Sequence[Run], backend: str) -> list[Run]:
        """Return the runs that have a record of a backend."""
        found = with_backend(self.store, backend) if runs else set()
        return [run for run in runs if run.id in found]

    def answer_state(self, names: Sequence[str]) -> Hashable | None:
        """Return a value that changes whenever an answer about these runs may change, or None while one of them is
        being written, because answers then depend on the time as well."""
        known = self.runs()
        runs = [find_among(known, name) for name in names] if known else []
        found = self.summaries_at_marks(runs)
        if not runs or any(one.summary.missing for one in found):
            return None
        return (
            self._file,
            tuple(known),
            tuple((one.summary.run.id, one.mark) for one in found),
            last_finding(self.store),
        )

    def row(self, run: Run, key: str) -> tuple[Row, dict[str, Any]]:
        """Return a row with its whole records, and the facts of its environment. If the run is not in memory, only the
        case of the row is read."""
        store = self.store
        view = None if self._views.has(run) else case_view(store, run, key, self._views.known)
        view = view or self._views.run_view(store, run)
        known = any(row.key == key for row in view.rows)
        records = records_of_task(store, run.id, key) if known else []
        if not records:
            raise UnknownName(f"item of run {run.id}", key, (row.key for row in view.rows), f"/runs/{run.id}")
        (row,) = rows_of_records(records, run.id, view.machines, every=False)
        return row, view.environments.get(row.environment, {})

    def run_view(self, run: Run) -> RunView:
        """Return a run as it is now; only records written since the last request are read."""
        store = self.store
        return self._views.run_view(store, run)

    def items(self, run: Run, request: ItemRequest) -> RunItems:
        """Return one page of the rows of a run; the first page does not wait until the whole run is read."""
        store = self.store
        found = None if self._views.has(run) else select_stored_items(store, run, self._views.known, request)
        return found or select_items(self._views.run_view(store, run), request)

    def progress(self, run: Run) -> RunProgress:
        return read_progress(self.store, run)

    def cases(self) -> list[tuple[Case, str]]:
        """Return all cases of the store by operator, with their parameters as text."""
        if not self.exists:
            return []
        store = self.store
        return self._cases.get(store)

    def read_ahead(self) -> None:
        """Read the newest runs in a thread, so that the first page is quick."""
        self._ahead = Thread(target=self._read_newest, name="opmark-read-ahead", daemon=True)
        self._ahead.start()

    def close(self) -> None:
        self._closing.set()
        if self._ahead:
            self._ahead.join()
        with self._lock:
            if self._opened is not None:
                self._opened.close()
            self._forget()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count a request as under way; nothing is read ahead meanwhile."""
        with self._lock:
            self._requests += 1
        try:
            yield
        finally:
            with self._lock:
                self._requests -= 1
                self._last_answer = time.monotonic()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Make answers one after the other. Python computes one at a time in any case, and a thread that reads rows
        releases the interpreter at each of them and then waits for the threads that compute."""
        with self._turn:
            yield

    def _read_newest(self) -> None:
        for step in self._steps():
            if not self._wait_for_quiet():
                return
            with self.turn(), suppress(OpmarkError):  # a request for that page gets the message
                step()

    def _steps(self) -> Iterator[Callable[[], object]]:
        """Yield short steps of reading ahead: a request that comes during one gets only half of the processor."""
        known: list[Run] = []
        with suppress(StoreError):
            known = self.runs()
        yield lambda: self.summaries(known[:FIRST_PAGE])
        yield from (partial(self.run_view, run) for run in known[:READ_AHEAD])
        yield self.cases
        yield from (partial(make, self) for make in self.ahead)
        yield from (partial(self.summaries, [run]) for run in known)

    def _wait_for_quiet(self) -> bool:
        """Wait for a moment without requests; return False if the reader is closed."""
        while not self._closing.wait(_PAUSE):
            with self._lock:
                if not self._requests and time.monotonic() - self._last_answer > _QUIET:
                    return True
        return False

    def _forget(self) -> None:
        """Drop the store and all caches. The store closes itself after its last reading thread."""
        self._opened = None
        self._views, self._summaries, self._cases = RunCache(), SummaryCache(), CaseListCache()


def _file_state(where: str | Path, *, written: bool = False) -> tuple[int, ...] | None:
    """Return a value that differs for another file of the same name, and with `written` also after every change;
    None for a server."""
    if isinstance(where, str):
        return None
    try:
        found = where.stat()
    except OSError:
        return None
    number = (found.st_dev, found.st_ino)
    return (*number, *_time_and_size(where), *_time_and_size(Path(f"{where}-wal"))) if written else number


def _time_and_size(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


LatestByOperator = Mapping[str, Mapping[str, Mapping[str, LatestTry]]]
"""Latest tries by operator, backend and phase."""


class LatestResults:
    """The last result of each operator on each backend; only records written since the last request are read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._read = RecordPosition()
        """The record up to which the store was read."""
        self._found: dict[str, dict[str, dict[str, LatestTry]]] = {}

    def read(self, reader: Reader) -> LatestByOperator:
        """Return the latest tries. Variants and interpreters of a backend count as the backend; skipped cases do not
        count as tried."""
        runs = {run.id for run in reader.runs()}
        with self._lock:
            known = [one for own in self._found.values() for phases in own.values() for one in phases.values()]
            if not {one.run for one in known} <= runs:  # some were pruned
                self._found, self._read = {}, RecordPosition()
            self._read, tries, anew = latest_tries(reader.store, self._read)
            if anew:
                self._found = {}
            for one in tries:
                name = one.backend.partition("@")[0].partition("/")[0]
                phases = self._found.setdefault(one.op, {}).setdefault(name, {})
                if one.phase not in phases or phases[one.phase].number < one.number:
                    phases[one.phase] = one._replace(reason=shorten(one.reason))
            return {op: {name: dict(phases) for name, phases in own.items()} for op, own in self._found.items()}
