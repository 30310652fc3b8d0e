"""What the functions of this package share: where results are kept, and how a run becomes a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from opmark.api.requests import talk
from opmark.hardware.datasheets import datasheet
from opmark.interfaces import Store
from opmark.report.view import Known
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
    found = store.environments({record.environment for record in records if record.environment})
    facts = {key: environment.facts for key, environment in found.items()}
    return Result(run, records, shown(db), facts, {key: _known(store, f) for key, f in facts.items()})


def _known(store: Store, facts: dict[str, Any]) -> Known:
    """What was measured of a chip and of its noise, and what its datasheet says."""
    measured = store.kept("peaks", kept_under(facts))
    known = convert(measured, Peaks) if measured else None
    return Known(known, datasheet(chip(facts), facts.get("threads")), noise_of(store, facts))


def store_all(store: Store, run: Run, environments: Iterable[Environment], records: Sequence[Record]) -> None:
    store.begin(replace(run, tasks=len(records)))
    for environment in environments:
        store.add_environment(environment)
    for record in records:
        store.append(run.id, record)
