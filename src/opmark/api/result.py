"""The result of a run, and what the modules of this package share: opening stores, making results of stored runs."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from opmark.analysis.rows import MachineFacts, rows_of_records
from opmark.api.requests import talk
from opmark.hardware.datasheets import datasheet
from opmark.plugin import Results
from opmark.report.formats.dataframe import to_arrow, to_pandas
from opmark.report.row_view import row_view
from opmark.schema import Environment, ImportProblem, Record, Run
from opmark.schema.machine import Peaks, chip, findings_key
from opmark.schema.options import PathLike
from opmark.schema.record import MEASURED
from opmark.store import memory
from opmark.store.location import address, display_address
from opmark.store.protocol import Store
from opmark.store.runs import noise_of

__all__ = [
    "MachineFacts", "Result", "db_option", "facts_of", "interruption_line", "journals_of", "machine_at",
    "machine_facts", "open_store", "result_of", "storage_line", "store_all",
]  # fmt: skip


@dataclass(frozen=True, repr=False)
class Result:
    """A run with its records, oldest first."""

    run: Run
    records: list[Record]
    db: str | Path
    """Where it is stored: a file, or the address of a server."""
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Facts by environment id."""
    peaks: dict[str, MachineFacts] = field(default_factory=dict)
    """Measured peaks, datasheet and noise of the chip, by environment id."""
    problems: tuple[ImportProblem, ...] = ()
    """The parts of a foreign workload that could not be used."""

    journals: tuple[Path, ...] = ()
    """Journals that hold the run, or a part of it, because its store could not be written."""
    rank: int = 0
    """The rank of this process among those that a launcher started; only rank 0 has records."""
    rank_exit_code: int = 0
    """The exit code that rank 0 gave to this process."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 1 if no case was measured, a case failed, a part of a workload could not
        be used, or the run is not in its store yet."""
        if self.rank:
            return self.rank_exit_code
        measured = any(record.status in MEASURED for record in self.records)
        return 0 if measured and not self.failed and not self.problems and not self.journals else 1

    @property
    def stored(self) -> bool:
        """Whether the run is in its store or a journal: a run of which no task was tried leaves nothing."""
        return any(not record.untried for record in self.records)

    @property
    def storage(self) -> str:
        """Where the run is, in words."""
        if self.records and not self.stored:
            return "nothing was stored, since no task was tried: the same command begins anew"
        return storage_line([self.run.id], self.db, self.journals)

    def results(self) -> Results:
        """Return the run in the form that exporters take."""
        chips = {key: known.datasheet for key, known in self.peaks.items() if known.datasheet}
        measured = {key: known.measured for key, known in self.peaks.items() if known.measured}
        return Results(self.run, self.records, self.environments, chips, measured)

    @property
    def failed(self) -> bool:
        return any(record.failed for record in self.records)

    def rows(self) -> list[dict[str, Any]]:
        """Return what `--json` prints: medians, intervals, rates and everything else except samples, as plain data."""
        return [row_view(row) for row in rows_of_records(self.records, self.run.id, self.peaks, named=False)]

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`; nested values become columns with dots in their names."""
        return to_pandas(self.rows())

    def to_arrow(self) -> Any:
        """Return the rows as a `pyarrow.Table`."""
        return to_arrow(self.rows())

    def __repr__(self) -> str:
        counts = Counter(record.status_text for record in self.records)
        listed = ", ".join(f"{count} {status}" for status, count in counts.items())
        return f"<opmark run {self.run.id}: {listed}>"


_UPGRADE = "hint: `opmark runs --upgrade` upgrades the store itself, once"


def open_store(db: PathLike | None = None, *, create: bool = False, say: Callable[[str], None] = talk) -> Store:
    """Open a store for reading; with `create`, for writing, and create it if it does not exist. If the connection is
    lost while writing, records go to a local journal."""
    if str(db) == memory.NAME:
        return memory.MemoryStore()
    from opmark.store.backlog import flush_pending, tell_waiting
    from opmark.store.sql import open_sql

    store = open_sql(db, create=create)
    store.say = say
    if not create:
        tell_waiting(db, say)
        if store.copied:
            say(f"{display_address(db)}: is of an older version; a copy is upgraded each time it is read\n{_UPGRADE}")
        return store
    from opmark.store.journal import JournaledStore

    with ExitStack() as undo:
        undo.callback(store.close)
        flush_pending(store, db, say)
        undo.pop_all()
    return JournaledStore(store, db, say)


@contextmanager
def existing_store(db: PathLike | None = None) -> Iterator[Store | None]:
    """Yield the store for reading; None if nobody has made it yet."""
    where = address(db)
    if isinstance(where, Path) and not where.exists():
        yield None
        return
    with closing(open_store(db)) as store:
        yield store


def journals_of(db: PathLike | None, run_ids: Collection[str]) -> tuple[Path, ...]:
    """Return the journals in which something of these runs waits for its store."""
    if str(db) == memory.NAME:
        return ()
    from opmark.store import backlog

    return tuple(backlog.journals_of(db, run_ids))


def db_option(db: PathLike | None) -> str:
    """Return the option that names a store, without a password, for a command that a message shows; empty for the store
    that needs none."""
    return f" --db {shlex.quote(str(display_address(db)))}" if db else ""


def storage_line(run_ids: Sequence[str], db: PathLike | None, journals: tuple[Path, ...] | None = None) -> str:
    """Say where runs are, once their store is closed: there, or in a journal for now, with the command that brings them
    in."""
    runs = f"run{'s' * (len(run_ids) > 1)} {' and '.join(run_ids)}"
    if journals is None:
        journals = journals_of(db, run_ids)
    if not journals:
        return f"stored as {runs} in {display_address(db)}"
    from opmark.store.backlog import merge_command

    where = " and ".join(map(str, journals))
    commands = " and ".join(f"`{merge_command(path, db)}`" for path in journals)
    return f"{runs} kept in the journal {where}, not yet in {display_address(db)}: {commands} brings it in"


def interruption_line(run_ids: Sequence[str], db: PathLike | None, advice: str = "") -> str:
    """Say what is left of an interrupted command, once its store is closed: the runs that have a record."""
    if not run_ids:
        return "interrupted before the first record: nothing was stored"
    where = (
        "the results were only in memory: nothing is stored" if str(db) == memory.NAME else storage_line(run_ids, db)
    )
    return f"interrupted{advice and '; '}{advice}\n{where}"


def result_of(store: Store, run: Run, records: list[Record], db: PathLike | None) -> Result:
    facts = facts_of(store, (record.environment for record in records))
    return Result(
        run, records, display_address(db), facts, {key: machine_facts(store, own) for key, own in facts.items()}
    )


def facts_of(store: Store, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the facts of environments by id. Empty ids, of records that never ran, are ignored."""
    if not (wanted := sorted({*ids} - {""})):
        return {}  # a store that is not made before the first record is not asked
    found = store.environments(wanted)
    return {key: environment.facts for key, environment in found.items()}


def machine_at(store: Store, environment: str) -> MachineFacts:
    """Return the machine facts of a stored environment; without facts for a record that never ran."""
    facts = facts_of(store, [environment]).get(environment)
    return machine_facts(store, facts) if facts else MachineFacts()


def machine_facts(store: Store, facts: dict[str, Any]) -> MachineFacts:
    """Return the measured peaks of a chip, its datasheet, and its noise floor."""
    measured = store.kept("peaks", findings_key(facts))
    threads, cores = facts.get("threads"), facts.get("cores")
    sheet = datasheet(chip(facts), threads if isinstance(threads, int) else None)
    # Peaks of all cores are no peaks of fewer, so that a share of them would say nothing.
    elsewhere = measured is None and store.kept("peaks", findings_key({**facts, "threads": cores})) is not None
    noise = noise_of(store, facts)
    return MachineFacts(convert(measured, Peaks) if measured else None, sheet, noise, cores if elsewhere else None)


def store_all(store: Store, run: Run, environments: Iterable[Environment], records: Sequence[Record]) -> None:
    store.begin(replace(run, tasks=len(records)))
    for environment in environments:
        store.add_environment(environment)
    for record in records:
        store.append(run.id, record)
