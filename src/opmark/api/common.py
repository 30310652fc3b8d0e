"""What the functions of this package share: where results are kept, and how a run becomes a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from opmark.analysis.rows import MachineFacts
from opmark.api.requests import talk
from opmark.hardware.datasheets import datasheet
from opmark.interfaces import Store
from opmark.result import Result
from opmark.schema import Environment, Record, Run
from opmark.schema.options import PathLike
from opmark.schema.peaks import Peaks, chip, kept_under
from opmark.store import memory
from opmark.store.find import noise_of
from opmark.store.location import shown

_UPGRADE = "hint: `opmark runs --upgrade` upgrades the store itself, once"


def open_store(db: PathLike | None = None, *, create: bool = False, say: Callable[[str], None] = talk) -> Store:
    """Open a store to read; with `create`, to write, and make it if need be. A lost store costs no record."""
    if str(db) == memory.NAME:
        return memory.MemoryStore()
    from opmark.store.open import open_sql
    from opmark.store.waiting import flush_waiting, tell_waiting

    store = open_sql(db, create=create)
    if not create:
        tell_waiting(db, say)
        if store.copied:
            say(f"{shown(db)}: is of an older version; a copy is upgraded each time it is read\n{_UPGRADE}")
        return store
    from opmark.store.journal import JournaledStore

    with ExitStack() as undo:
        undo.callback(store.close)
        flush_waiting(store, db, say)
        undo.pop_all()
    return JournaledStore(store, db, say)


def result_of(store: Store, run: Run, records: list[Record], db: PathLike | None) -> Result:
    facts = facts_of(store, (record.environment for record in records))
    return Result(run, records, shown(db), facts, {key: machine_facts(store, own) for key, own in facts.items()})


def facts_of(store: Store, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The facts of environments by id; some records have none."""
    found = store.environments(sorted({*ids} - {""}))
    return {key: environment.facts for key, environment in found.items()}


def machine_at(store: Store, environment: str) -> MachineFacts:
    """As `machine_facts`, by the id of a stored environment; a record that never ran has none."""
    facts = facts_of(store, [environment]).get(environment)
    return machine_facts(store, facts) if facts else MachineFacts()


def machine_facts(store: Store, facts: dict[str, Any]) -> MachineFacts:
    """What was measured of a chip and of its noise, and what its datasheet says."""
    measured = store.kept("peaks", kept_under(facts))
    threads = facts.get("threads")
    sheet = datasheet(chip(facts), threads if isinstance(threads, int) else None)
    return MachineFacts(convert(measured, Peaks) if measured else None, sheet, noise_of(store, facts))


def store_all(store: Store, run: Run, environments: Iterable[Environment], records: Sequence[Record]) -> None:
    store.begin(replace(run, tasks=len(records)))
    for environment in environments:
        store.add_environment(environment)
    for record in records:
        store.append(run.id, record)
