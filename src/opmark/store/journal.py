"""A store that loses nothing: what cannot be written where it belongs is kept in a journal, and brought in later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from opmark.errors import StoreError
from opmark.interfaces.store import Noted
from opmark.schema import Case, Environment, Record, Run
from opmark.schema.figure import Figure
from opmark.schema.finding import Finding
from opmark.store.database import Lost, Replaced
from opmark.store.location import Told
from opmark.store.pack import case_row, to_row
from opmark.store.spool import Spool
from opmark.store.sql import SqlStore
from opmark.store.waiting import Say, discard, flush, new_journal, path_of

T = TypeVar("T")


class JournaledStore:
    """For one process that measures. Once the store is lost, all goes to the journal until the end: measuring does not
    wait for a server. What this process wrote, it can read in any case.

    What an SQLite file has, it has. A server that goes down may forget what it had confirmed: it is told again.
    """

    def __init__(self, store: SqlStore, told: Told, say: Say) -> None:
        self.store = store
        self._told, self._say = told, say
        self._journals: list[SqlStore] = []
        """The last one is written to; those before it could not be written any more."""
        self._in_journal: set[str] = set()
        """Runs that the last one knows."""
        self._taken = 0
        """How much was written to the last one."""
        self._tried: list[Path] = []
        """Folders of journals."""
        self._spool = Spool() if store.database.shared else None
        self._environments: dict[str, Environment] = {}
        self._begun: set[str] = set()
        """Runs of which this process wrote everything."""
        self._known: dict[str, Run] = {}

    def begin(self, run: Run) -> None:
        self._write(lambda store: store.begin(run))
        if self._journals:
            self._in_journal.add(run.id)
        self._begun.add(run.id)
        self._known[run.id] = run
        self._spooled("begin", run)

    def add_environment(self, environment: Environment) -> None:
        self._environments[environment.id] = environment
        self._write(lambda store: store.add_environment(environment))

    def append(self, run_id: str, record: Record) -> None:
        self.extend(run_id, [record])

    def extend(self, run_id: str, records: Sequence[Record]) -> int:
        rows = [to_row(run_id, record) for record in records]
        cases = [case_row(case) for case in {r.task.case.id: r.task.case for r in records}.values()]
        new = self._write(lambda store: store.extend_packed(cases, rows), run_id)
        self._spooled("records", (run_id, cases, rows))
        return new

    def note(self, run_id: str, kind: Noted, text: str) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._write(lambda store: store.note(run_id, kind, text, now), run_id)
        self._spooled("note", (run_id, kind, text, now))

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        self._write(lambda store: store.keep(kind, chip, started, body))
        self._spooled("keep", (kind, chip, started, body))

    def remove(self, run_ids: Sequence[str]) -> None:
        self.store.remove(run_ids)

    def runs(self, limit: int | None = None) -> list[Run]:
        found = self.store.runs(limit)
        for run in found:
            self._known.setdefault(run.id, run)
        return found

    def records(self, run_id: str) -> list[Record]:
        stored = [] if self._all_in_journal(run_id) else self.store.records(run_id)
        found = [*stored, *(record for journal in self._journals for record in journal.records(run_id))]
        return list({record.task.id: record for record in found}.values())

    def figures(self, *, runs: Sequence[str] | None = None, case: str | None = None) -> list[Figure]:
        others = None if runs is None else [run for run in runs if not self._all_in_journal(run)]
        found = [] if others == [] else self.store.figures(runs=others, case=case)
        for journal in self._journals:
            found += journal.figures(runs=runs, case=case)
        return list({(figure.run, figure.series, figure.process): figure for figure in found}.values())

    def cases(self, ids: Iterable[str]) -> dict[str, Case]:
        wanted = list(ids)
        found = self._ask(lambda store: store.cases(wanted))
        return {key: case for some in found for key, case in some.items()}

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]:
        wanted = list(ids)
        found = self._ask(lambda store: store.environments(wanted))
        return {key: environment for some in found for key, environment in some.items()}

    def kept(self, kind: str, chip: str) -> Any:
        found = [body for body in self._ask(lambda store: store.kept(kind, chip)) if body is not None]
        return found[-1] if found else None

    def findings(self) -> list[Finding]:
        found: list[Finding] = []
        for some in self._ask(lambda store: store.findings()):
            found += [finding for finding in some if finding not in found]
        return found

    def close(self) -> None:
        try:
            for journal in self._journals:
                self._flush(journal)
        finally:
            self.store.close()
            if self._spool:
                self._spool.close()

    def _all_in_journal(self, run_id: str) -> bool:
        """A server that is gone is not waited for again."""
        told_again = self._spool is not None and not self._spool.problem
        return bool(self._journals) and told_again and run_id in self._begun

    def _spooled(self, kind: str, what: Any) -> None:
        if self._spool and not self._journals:
            self._spool.add(kind, what)

    def _write(self, what: Callable[[SqlStore], T], run_id: str | None = None) -> T:
        """What belongs to a run that has begun is not lost for any reason: somebody may have removed the run."""
        if not self._journals:
            try:
                return what(self.store)
            except StoreError as failure:
                if not isinstance(failure, Lost) and run_id not in self._known:
                    raise
                self._turn_to_journal(failure)
        return self._write_down(what, run_id)

    def _write_down(self, what: Callable[[SqlStore], T], run_id: str | None) -> T:
        while True:
            try:
                if run_id is not None:
                    self._begin_in(self._journals[-1], run_id)
                told = what(self._journals[-1])
            except Lost as loss:
                self._turn_to_journal(loss)
            else:
                self._taken += 1
                return told

    def _begin_in(self, journal: SqlStore, run_id: str) -> None:
        if run_id not in self._in_journal and run_id in self._known:
            journal.begin(self._known[run_id])
            self._in_journal.add(run_id)

    def _turn_to_journal(self, failure: StoreError) -> None:
        """The first one has all that the store may have forgotten; the next ones, what comes after those before."""
        before, taken = self._in_journal, self._taken
        first = not self._journals or not taken

        def fill(journal: SqlStore) -> None:
            self._in_journal, self._taken = set(), 0
            for environment in self._environments.values():
                journal.add_environment(environment)
            if first:
                self._tell_again(journal)
                self._rescue(journal, failure)

        try:
            journal = new_journal(self._told, self.store.identity, fill, self._tried)
        except StoreError as error:
            self._in_journal = before
            raise StoreError(f"{failure.message}; and {error.message}", error.hint) from None
        if self._journals and not taken:
            discard(self._journals.pop())
        self._journals.append(journal)
        self._tried.append(path_of(journal).parent)
        self._say(f"{failure.message}\nwhat is measured from here on is kept in {journal.database.name}")

    def _tell_again(self, journal: SqlStore) -> None:
        for kind, what in self._spool.entries() if self._spool else ():
            if kind == "keep":
                journal.keep(*what)
                self._taken += 1
                continue
            run_id = what["id"] if kind == "begin" else what[0]
            if kind == "begin":
                self._known.setdefault(run_id, msgspec.convert(what, Run))
            self._begin_in(journal, run_id)
            if kind == "records":
                journal.extend_packed(*what[1:])
            elif kind == "note":
                journal.note(*what)
            self._taken += 1

    def _rescue(self, journal: SqlStore, failure: StoreError) -> None:
        """A file that is gone from its place can be read until the last one closes it."""
        for run_id in self._begun if isinstance(failure, Replaced) else ():
            try:
                records = self.store.records(run_id)
            except StoreError as error:
                self._say(f"what was measured before is gone with it: {error.message}")
                continue
            self._begin_in(journal, run_id)
            self._taken += journal.extend(run_id, records)

    def _ask(self, question: Callable[[SqlStore], T]) -> list[T]:
        """What is good to know, and can be done without: of the store, then of the journals."""
        gone = bool(self._journals) and self.store.database.shared
        found = []
        for store in (*(() if gone else (self.store,)), *self._journals):
            try:
                found.append(question(store))
            except Lost:
                continue
        return found

    def _flush(self, journal: SqlStore) -> None:
        try:
            flush(self.store, journal, self._say)
        except StoreError as error:
            if journal is self._journals[-1] and not self._taken:
                discard(journal)
                return
            self._say(
                f"the store is still out of reach: {error.message}\nthe records are in {journal.database.name}\n"
                "hint: the next command that writes to the store brings them in, as does "
                f"`opmark merge {journal.database.name} --db {self.store.database.name}`"
            )
