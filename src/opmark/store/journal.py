"""A store that loses nothing: what cannot be written where it belongs is kept in a journal, and brought in later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from opmark.errors import StoreError
from opmark.interfaces import Store
from opmark.interfaces.store import Noted
from opmark.schema import Case, Environment, Record, Run
from opmark.schema.figure import Figure
from opmark.schema.finding import Finding
from opmark.store.database import Lost
from opmark.store.location import Told
from opmark.store.memory import MemoryStore
from opmark.store.sql import SqlStore
from opmark.store.waiting import Say, flush, new_journal

T = TypeVar("T")


class JournaledStore:
    """For one process that measures. Once the store is lost, all goes to the journal until the end: measuring does not
    wait for a server. What this process wrote, it can read in any case."""

    def __init__(self, store: SqlStore, told: Told, say: Say) -> None:
        self.store = store
        self._told, self._say = told, say
        self._journal: SqlStore | None = None
        self._in_journal: set[str] = set()
        self._done: list[tuple[Callable[[Store], Any], str | None]] = []
        """All that a server was told, and of which run: one that goes down may forget what it had confirmed."""
        self._mine = MemoryStore()
        self._begun: set[str] = set()
        """Runs of which this process wrote everything."""
        self._known: dict[str, Run] = {}

    def begin(self, run: Run) -> None:
        def start(store: Store) -> None:
            store.begin(run)
            if store is self._journal:
                self._in_journal.add(run.id)

        self._write(start)
        self._begun.add(run.id)
        self._remember(run)

    def add_environment(self, environment: Environment) -> None:
        self._write(lambda store: store.add_environment(environment))
        self._mine.add_environment(environment)

    def append(self, run_id: str, record: Record) -> None:
        self.extend(run_id, [record])

    def extend(self, run_id: str, records: Sequence[Record]) -> int:
        new = self._write(lambda store: store.extend(run_id, records), run_id)
        if run_id in self._known:
            self._mine.extend(run_id, records)
        return new

    def note(self, run_id: str, kind: Noted, text: str) -> None:
        self._write(lambda store: store.note(run_id, kind, text), run_id)
        self._mine.note(run_id, kind, text)

    def keep(self, kind: str, chip: str, started: str, body: Any) -> None:
        self._write(lambda store: store.keep(kind, chip, started, body))
        self._mine.keep(kind, chip, started, body)

    def remove(self, run_ids: Sequence[str]) -> None:
        self.store.remove(run_ids)
        self._mine.remove(run_ids)

    def runs(self, limit: int | None = None) -> list[Run]:
        found = self.store.runs(limit)
        for run in found:
            self._remember(run)
        return found

    def records(self, run_id: str) -> list[Record]:
        if not self._journal:
            return self.store.records(run_id)
        others = [] if run_id in self._begun else self.store.records(run_id)
        return list({record.task.id: record for record in (*others, *self._mine.records(run_id))}.values())

    def figures(self, *, runs: Sequence[str] | None = None, case: str | None = None) -> list[Figure]:
        if not self._journal:
            return self.store.figures(runs=runs, case=case)
        others = None if runs is None else [run for run in runs if run not in self._begun]
        elsewhere = [] if others == [] else self.store.figures(runs=others, case=case)
        found = (*elsewhere, *self._mine.figures(runs=runs, case=case))
        return list({(figure.run, figure.series, figure.process): figure for figure in found}.values())

    def cases(self, ids: Iterable[str]) -> dict[str, Case]:
        wanted = list(ids)
        known = self._mine.cases(wanted)
        return known | self._ask(lambda store: store.cases(wanted), known)

    def environments(self, ids: Iterable[str]) -> dict[str, Environment]:
        wanted = list(ids)
        known = self._mine.environments(wanted)
        return known | self._ask(lambda store: store.environments(wanted), known)

    def kept(self, kind: str, chip: str) -> Any:
        mine = self._mine.kept(kind, chip) if self._journal else None
        return self._ask(lambda store: store.kept(kind, chip), None) if mine is None else mine

    def findings(self) -> list[Finding]:
        none: list[Finding] = []
        stored = self._ask(lambda store: store.findings(), none)
        return stored + [finding for finding in self._mine.findings() if finding not in stored]

    def close(self) -> None:
        try:
            if self._journal:
                self._flush(self._journal)
        finally:
            self.store.close()

    def _remember(self, run: Run) -> None:
        if run.id not in self._known:
            self._known[run.id] = run
            self._mine.begin(run)

    def _write(self, what: Callable[[Store], T], run_id: str | None = None) -> T:
        if self._journal is None:
            try:
                told = what(self.store)
            except Lost as loss:
                self._turn_to_journal(loss)
            else:
                if self.store.database.shared:
                    self._done.append((what, run_id))
                return told
        return self._write_down(what, run_id)

    def _write_down(self, what: Callable[[Store], T], run_id: str | None) -> T:
        assert self._journal is not None
        if run_id is not None and run_id not in self._in_journal and run_id in self._known:
            self._journal.begin(self._known[run_id])
            self._in_journal.add(run_id)
        return what(self._journal)

    def _turn_to_journal(self, loss: Lost) -> None:
        try:
            self._journal = new_journal(self._told)
            for what, run_id in self._done:
                self._write_down(what, run_id)
        except StoreError as error:
            raise StoreError(f"{loss.message}; and {error.message}", error.hint) from None
        self._done.clear()
        self._say(f"{loss.message}\nwhat is measured from here on is kept in {self._journal.database.name}")

    def _ask(self, question: Callable[[Store], T], otherwise: T) -> T:
        """What is good to know, and can be done without. A server that is gone is not waited for again."""
        if self._journal and self.store.database.shared:
            return otherwise
        try:
            return question(self.store)
        except Lost:
            return otherwise

    def _flush(self, journal: SqlStore) -> None:
        try:
            flush(self.store, journal, self._say)
        except StoreError as error:
            self._say(
                f"the store is still out of reach: {error.message}\nthe records are in {journal.database.name}\n"
                "hint: the next command that writes to the store brings them in, as does `opmark merge` with that file"
            )
