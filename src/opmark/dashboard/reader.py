"""What pages read: the store, with the runs that were looked at last kept in memory.

A store is append-only: what was read of a run stays true, and only what was written since has to be read. Many threads
ask at once; a lock a run sees to it that one of them reads, and the others find what it read.
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
from opmark.dashboard.items import ItemRequest, RunItems, RunProgress, part_at, part_of
from opmark.dashboard.navigation import brief
from opmark.dashboard.run_cache import KeptCases, KeptSummaries, RunCache, SummaryAtMark, progress
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
"""Runs that are read before anybody asks for them."""
_QUIET, _PAUSE = 0.5, 0.02
"""Seconds without a question until something is read ahead, and how often that is looked for."""
FIRST_PAGE = 50
"""Runs of the page that everybody begins at."""


class Reader:
    """`db` may not be there yet: it is looked for whenever something is asked."""

    def __init__(self, db: PathLike | None = None) -> None:
        self.db = db
        self.name = str(display_address(db))
        """For messages: without a password."""
        self._lock = Lock()
        self._turn = Lock()
        self._opened: SqlStore | None = None
        self._file: tuple[int, ...] | None = None
        self._kept, self._summaries, self._cases = RunCache(), KeptSummaries(), KeptCases()
        self._closing = Event()
        self._ahead: Thread | None = None
        self._asking, self._answered = 0, time.monotonic()
        self.ahead: list[Callable[[Reader], object]] = []
        """What else is made before anybody asks for it."""

    @property
    def there(self) -> bool:
        return store_exists(self.db)

    @property
    def store(self) -> SqlStore:
        """For reading. `StoreError` where there is none; another file of the same name is another store, and so is one
        of an older version, of which a copy is read, as soon as somebody wrote to it."""
        with self._lock:
            where = address(self.db)
            now = _state_of(where, written=self._opened is not None and self._opened.copied)
            if self._opened is None or now != self._file:
                self._forget()
                before = _state_of(where, written=True)  # what is written from here on is seen the next time
                self._opened = open_read_only(self.db)
                self._file = before if self._opened.copied else _state_of(where)
            return self._opened

    def runs(self) -> list[Run]:
        """The runs begun last come first; none where there is no store yet."""
        if not self.there:
            return []
        known = self.store.runs()
        self._summaries.keep_only({run.id for run in known})
        return known

    def run(self, name: str) -> Run:
        """By its id, the beginning of it, or its label."""
        known = self.runs()
        if not known:
            error = UnknownName("run", name, ())
            error.hint = "the store holds no run yet: `opmark run --suite quick` makes one"
            raise error
        return find_among(known, name)

    def summaries(self, runs: Sequence[Run]) -> list[RunSummary]:
        """In the order of the runs."""
        return [one.summary for one in self.counted(runs)]

    def counted(self, runs: Sequence[Run]) -> list[SummaryAtMark]:
        """The same with their marks, which change with whatever is written to a run."""
        if not runs:
            return []
        store = self.store  # first: another file begins with nothing kept
        return self._summaries.of(store, runs)

    def with_backend(self, runs: Sequence[Run], backend: str) -> list[Run]:
        """The runs that have a record of a backend."""
        found = with_backend(self.store, backend) if runs else set()
        return [run for run in runs if run.id in found]

    def settled(self, names: Sequence[str]) -> Hashable | None:
        """What answers about these runs depend on; None while one of them is being written: then also on the time."""
        known = self.runs()
        runs = [find_among(known, name) for name in names] if known else []
        found = self.counted(runs)
        if not runs or any(one.summary.missing for one in found):
            return None
        return (
            self._file,
            tuple(known),
            tuple((one.summary.run.id, one.mark) for one in found),
            last_finding(self.store),
        )

    def row(self, run: Run, key: str) -> tuple[Row, dict[str, Any]]:
        """A row with its whole records, and the facts of its environment. Of a run that nobody looked at, no more than
        the case of the row is read."""
        store = self.store
        view = None if self._kept.has(run) else case_view(store, run, key, self._kept.known)
        view = view or self._kept.run_view(store, run)
        known = any(row.key == key for row in view.rows)
        records = records_of_task(store, run.id, key) if known else []
        if not records:
            raise UnknownName(f"item of run {run.id}", key, (row.key for row in view.rows), f"/runs/{run.id}")
        (row,) = rows_of_records(records, run.id, view.machines)
        return row, view.environments.get(row.environment, {})

    def run_view(self, run: Run) -> RunView:
        """A run as it is now: only what was written since it was last asked for is read."""
        store = self.store
        return self._kept.run_view(store, run)

    def part(self, run: Run, wanted: ItemRequest) -> RunItems:
        """A page of a run; the first one does not wait until all of the run is read."""
        store = self.store
        found = None if self._kept.has(run) else part_at(store, run, self._kept.known, wanted)
        return found or part_of(self._kept.run_view(store, run), wanted)

    def progress(self, run: Run) -> RunProgress:
        return progress(self.store, run)

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
            if self._opened is not None:
                self._opened.close()
            self._forget()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While somebody waits for a page: nothing is read ahead then."""
        with self._lock:
            self._asking += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1
                self._answered = time.monotonic()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One answer is made after the other. Python computes one at a time in any case; and who reads rows gives the
        interpreter away at each of them, to wait for whoever computes meanwhile."""
        with self._turn:
            yield

    def _read_newest(self) -> None:
        for step in self._steps():
            if not self._is_quiet():
                return
            with self.turn(), suppress(OpmarkError):  # whoever asks for that page is told
                step()

    def _steps(self) -> Iterator[Callable[[], object]]:
        """Each of them short: who asks for a page meanwhile has half of the processor."""
        known: list[Run] = []
        with suppress(StoreError):
            known = self.runs()
        yield lambda: self.summaries(known[:FIRST_PAGE])
        yield from (partial(self.run_view, run) for run in known[:READ_AHEAD])
        yield self.cases
        yield from (partial(make, self) for make in self.ahead)
        yield from (partial(self.summaries, [run]) for run in known)

    def _is_quiet(self) -> bool:
        """As soon as nobody has asked for anything for a moment. False: it is over."""
        while not self._closing.wait(_PAUSE):
            with self._lock:
                if not self._asking and time.monotonic() - self._answered > _QUIET:
                    return True
        return False

    def _forget(self) -> None:
        """It is closed as soon as the last who reads from it is done."""
        self._opened = None
        self._kept, self._summaries, self._cases = RunCache(), KeptSummaries(), KeptCases()


def _state_of(where: str | Path, *, written: bool = False) -> tuple[int, ...] | None:
    """What tells a file from another one of the same name, and with `written` also from itself before somebody wrote to
    it; a server has none."""
    if isinstance(where, str):
        return None
    try:
        found = where.stat()
    except OSError:
        return None
    number = (found.st_dev, found.st_ino)
    return (*number, *_written(where), *_written(Path(f"{where}-wal"))) if written else number


def _written(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


# The last result of each operator on each backend: only what was written since it was last asked for is read.

Found = Mapping[str, Mapping[str, Mapping[str, LatestTry]]]
"""By operator, backend and phase."""


class LatestResults:
    """Kept for each store that is open."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._read = RecordPosition()
        """The record up to which the store was read."""
        self._found: dict[str, dict[str, dict[str, LatestTry]]] = {}

    def tried(self, reader: Reader) -> Found:
        """A variant of a backend, or another interpreter, is the same backend. What was skipped was not tried."""
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
                    phases[one.phase] = one._replace(reason=brief(one.reason))
            return {op: {name: dict(phases) for name, phases in own.items()} for op, own in self._found.items()}
