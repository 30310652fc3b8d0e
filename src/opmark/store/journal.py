"""A store that loses no record: if it cannot be written, records go to a local journal, which is merged later."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opmark.errors import StoreError
from opmark.schema import Case, Environment, Record, Run
from opmark.schema.machine import MachineFinding
from opmark.schema.record import Figure
from opmark.schema.tuned import TunedEntry
from opmark.store.backlog import Say, discard, flush, merge_command, new_journal, path_of
from opmark.store.location import StoreLocation
from opmark.store.protocol import NoteKind, StoreReplaced, StoreUnreachable
from opmark.store.record_codec import case_row, to_row, whole
from opmark.store.sql import SqlStore, tuned_row

_LENGTH = 4
"""Bytes of the length in front of each entry."""


class Spool:
    """A temporary file with the entries that a server has confirmed, kept until the end of the run, because a server
    that goes down may forget them. Memory does not grow with it."""

    def __init__(self) -> None:
        self.problem = ""
        """Why entries are missing, if the disk could not take them. The server has them."""
        self._encoder = msgspec.msgpack.Encoder()
        try:
            self._file = tempfile.TemporaryFile(prefix="opmark-spool-", buffering=0)  # noqa: SIM115  (closed by `close`)
        except OSError as error:
            self.problem = str(error)

    def add(self, entry: Sequence[Any]) -> None:
        if self.problem:
            return
        try:
            packed = self._encoder.encode(entry)
        except UnicodeEncodeError:  # a lone surrogate, which the store replaced as well
            packed = self._encoder.encode(whole(msgspec.to_builtins(entry, builtin_types=(bytes,))))
        try:
            self._file.seek(0, 2)
            framed = len(packed).to_bytes(_LENGTH, "little") + packed
            if self._file.write(framed) < len(framed):
                self.problem = "no room is left for all of it"
        except OSError as error:
            self.problem = str(error)

    def entries(self) -> Iterator[Sequence[Any]]:
        """Yield the entries in the order added, up to the first problem."""
        if not hasattr(self, "_file"):
            return
        self._file.seek(0)
        while len(head := self._file.read(_LENGTH)) == _LENGTH:
            length = int.from_bytes(head, "little")
            packed = self._file.read(length)
            if len(packed) < length:
                return
            yield msgspec.msgpack.decode(packed)

    def close(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


class JournalEntry(NamedTuple):
    """One write operation, for the store, a journal, or both."""

    kind: str
    """environment, begin, records, note, keep, tuned."""
    run_id: str
    """Run to which it belongs, if that began earlier; else empty."""
    what: Sequence[Any]
    """Arguments of the store's method."""

    def write_to(self, store: SqlStore) -> int:
        """Write this, and return how many records are new."""
        if self.kind == "environment":
            store.add_environment(*self.what)
        elif self.kind == "begin":
            store.begin(*self.what)
        elif self.kind == "records":
            return store.extend_packed(*self.what)
        elif self.kind == "note":
            store.note(self.run_id, *self.what)
        elif self.kind == "tuned":
            with store.writing() as connection:
                return store.add_tuned_rows(connection, *self.what)
        else:
            store.keep(*self.what)
        return 0


class Journal:
    """A small local store with the entries that another store could not take."""

    def __init__(self, store: SqlStore, runs: dict[str, Run]) -> None:
        """`runs` are the runs that entries may belong to. The first entry of a run begins it in the journal, too."""
        self.store = store
        self.path = path_of(store)
        self.written = False
        """Whether it holds anything except environments."""
        self._runs = runs
        self._begun: set[str] = set()

    def write(self, entry: JournalEntry) -> int:
        if entry.run_id in self._runs and entry.run_id not in self._begun:
            self.begin(self._runs[entry.run_id])
        if entry.kind == "begin":
            self.begin(*entry.what)
            return 0
        new = entry.write_to(self.store)
        self.written = self.written or entry.kind != "environment"
        return new

    def begin(self, run: Run) -> None:
        self.store.begin(run)
        self._begun.add(run.id)
        self.written = True


class JournaledStore:
    """The store of a process that measures. Once the store is lost, everything goes to a journal until the end of the
    run, because measuring does not wait for a server; then the journal is merged. The process can always read what it
    wrote.

    SQLite needs nothing else: a committed record is on disk. A server that goes down may forget records that it had
    confirmed, so these are kept in a spool, which is written to the journal first.
    """

    def __init__(self, store: SqlStore, location: StoreLocation, say: Say) -> None:
        self.store = store
        self._location, self._say = location, say
        self._journals: list[Journal] = []
        """The last one is written to; earlier ones could not be written any more."""
        self._folders: list[Path] = []
        """Folders in which a journal was tried."""
        self._spool = Spool() if store.database.shared else None
        self._environments: dict[str, Environment] = {}
        self._known: dict[str, Run] = {}
        self._begun: set[str] = set()
        """Runs of which this process wrote everything."""

    # Writing.

    def begin(self, run: Run) -> None:
        self._write(JournalEntry("begin", "", [run]))
        self._begun.add(run.id)
        self._known[run.id] = run

    def add_environment(self, environment: Environment) -> None:
        self._environments[environment.id] = environment
        self._write(JournalEntry("environment", "", [environment]))

    def append(self, run_id: str, record: Record) -> None:
        self.extend(run_id, [record])

    def extend(self, run_id: str, records: Sequence[Record]) -> int:
        cases = {record.task.case.id: case_row(record.task.case) for record in records}
        rows = [to_row(run_id, record) for record in records]
        return self._write(JournalEntry("records", run_id, [list(cases.values()), rows]))

    def note(self, run_id: str, kind: NoteKind, text: str) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._write(JournalEntry("note", run_id, [kind, text, now]))

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        self._write(JournalEntry("keep", "", [kind, chip, started, body]))

    def add_tuned(self, entries: Sequence[TunedEntry]) -> int:
        return self._write(JournalEntry("tuned", "", [[tuned_row(entry) for entry in entries]]))

    def remove(self, run_ids: Sequence[str]) -> None:
        self.store.remove(run_ids)

    def _write(self, entry: JournalEntry) -> int:
        try:
            new = self._journals[-1].write(entry) if self._journals else entry.write_to(self.store)
        except StoreError as failure:
            # Entries of a run that has begun are kept whatever the reason: somebody may have removed the run.
            if not isinstance(failure, StoreUnreachable) and (self._journals or entry.run_id not in self._known):
                raise
            return self._turn_to_journal(failure, entry)
        if self._spool and not self._journals and entry.kind in ("records", "note", "keep", "tuned"):
            self._spool.add(entry)
        return new

    def _turn_to_journal(self, failure: StoreError, entry: JournalEntry) -> int:
        """Open another journal and write the entry to it. If a folder takes no journal, try the next one."""
        problems = [failure.message]
        first = not any(journal.written for journal in self._journals)
        while True:
            try:
                journal = Journal(new_journal(self._location, self.store.identity, self._folders), self._known)
            except StoreError as error:
                raise StoreError(f"{'; '.join(problems)}; and {error.message}", error.hint) from None
            self._folders.append(journal.path.parent)
            try:
                for environment in self._environments.values():
                    journal.write(JournalEntry("environment", "", [environment]))
                if first:
                    self._write_earlier(journal, failure)
                new = journal.write(entry)
                break
            except StoreError as error:
                problems.append(f"{journal.path.parent}: {error.message}")
                discard(journal.store)
        if first:  # earlier journals hold nothing needed
            for empty in self._journals:
                discard(empty.store)
            self._journals.clear()
        self._journals.append(journal)
        self._say(f"{failure.message}\nwhat is measured from here on is kept in {journal.store.database.name}")
        return new

    def _write_earlier(self, journal: Journal, failure: StoreError) -> None:
        """Write the records that the store confirmed and may have lost."""
        if self._spool:
            for run_id in sorted(self._begun):
                journal.begin(self._known[run_id])
            for entry in self._spool.entries():
                journal.write(JournalEntry(*entry))
        elif isinstance(failure, StoreReplaced):  # a file that is gone from its place can be read until it is closed
            for run_id in sorted(self._begun):
                try:
                    records = self.store.records(run_id)
                except StoreError as error:
                    self._say(f"what was measured before is gone with it: {error.message}")
                    continue
                journal.begin(self._known[run_id])
                journal.store.extend(run_id, records)

    # Reading.

    def runs(self, limit: int | None = None) -> list[Run]:
        found = self.store.runs(limit)
        for run in found:
            self._known.setdefault(run.id, run)
        return found

    def records(self, run_id: str) -> list[Record]:
        found = [] if self._all_in_journal(run_id) else self.store.records(run_id)
        for journal in self._journals:
            found += journal.store.records(run_id)
        return list({record.task.id: record for record in found}.values())

    def figures(self, *, runs: Sequence[str] | None = None, case: str | None = None) -> list[Figure]:
        others = None if runs is None else [run for run in runs if not self._all_in_journal(run)]
        found = [] if others == [] else self.store.figures(runs=others, case=case)
        for journal in self._journals:
            found += journal.store.figures(runs=runs, case=case)
        return list({(figure.run, figure.series, figure.process): figure for figure in found}.values())

    def cases(self, ids: Iterable[str]) -> dict[str, Case]:
        wanted, found = list(ids), dict[str, Case]()
        for store in self._reachable():
            with suppress(StoreUnreachable):
                found |= store.cases(wanted)
        return found

    def counts(self, run_id: str) -> dict[str, int]:
        found = {} if self._all_in_journal(run_id) else self.store.counts(run_id)
        for journal in self._journals:
            found |= journal.store.counts(run_id)
        return found

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]:
        wanted, found = list(ids), dict[str, Environment]()
        for store in self._reachable():
            with suppress(StoreUnreachable):
                found |= store.environments(wanted)
        return found

    def kept(self, kind: str, chip: str) -> Any:
        found = None
        for store in self._reachable():
            with suppress(StoreUnreachable):
                body = store.kept(kind, chip)
                found = found if body is None else body
        return found

    def findings(self) -> list[MachineFinding]:
        found: list[MachineFinding] = []
        for store in self._reachable():
            with suppress(StoreUnreachable):
                found += [finding for finding in store.findings() if finding not in found]
        return found

    def tuned(self, op: str | None = None, backend: str | None = None, case: str | None = None) -> list[TunedEntry]:
        found: list[TunedEntry] = []
        for store in self._reachable():
            with suppress(StoreUnreachable):
                found += [entry for entry in store.tuned(op, backend, case) if entry not in found]
        return found

    def _all_in_journal(self, run_id: str) -> bool:
        """Return whether the journal has all of a run, so that a lost server need not be waited for again."""
        complete = self._spool is not None and not self._spool.problem
        return bool(self._journals) and complete and run_id in self._begun

    def _reachable(self) -> list[SqlStore]:
        """Return the store, unless it is a lost server, and the journals. Reads go on if one of them is unreachable."""
        journals = [journal.store for journal in self._journals]
        return journals if journals and self.store.database.shared else [self.store, *journals]

    # The end.

    def close(self) -> None:
        """Merge the journals into the store, if it is back."""
        try:
            for journal in self._journals:
                try:
                    flush(self.store, journal.store, self._say)
                except StoreError as error:
                    if not journal.written:
                        discard(journal.store)
                        continue
                    command = merge_command(journal.path, self._location)
                    self._say(
                        f"the store is still out of reach: {error.message}\nthe records are in {journal.path}\n"
                        f"hint: the next command that writes to the store brings them in, as does `{command}`"
                    )
        finally:
            self.store.close()
            if self._spool:
                self._spool.close()
