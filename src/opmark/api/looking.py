"""A stored run as pages show it: what `opmark report` draws and `opmark serve` serves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from msgspec import convert

from opmark.analysis.items import Names, items_of
from opmark.hardware.datasheets import datasheet
from opmark.interfaces import Store
from opmark.schema import Case, Run
from opmark.schema.item import Ceilings, Item, Looked
from opmark.schema.options import PathLike
from opmark.schema.peaks import Peaks, chip, kept_under
from opmark.store.find import find_run
from opmark.store.glances import Glance, glances
from opmark.store.open import open_sql
from opmark.store.sql import SqlStore


def look(run: str | None = None, *, db: PathLike | None = None) -> Looked:
    """A stored run: the last one, or one by its id (or the beginning of it) or its label."""
    with closing(open_sql(db)) as store:
        return look_at(store, find_run(store, run))


class Known:
    """What is the same in many runs, kept by who looks at several."""

    def __init__(self) -> None:
        self.names = Names()
        self._cases: dict[str, Case] = {}

    def cases(self, store: SqlStore, ids: set[str]) -> dict[str, Case]:
        """Those that are missing are read and added; there may be more than were asked for."""
        missing = ids - self._cases.keys()
        if missing:
            self._cases = {**self._cases, **store.cases(missing)}  # anew: other threads read the old one
        return self._cases


def look_at(store: SqlStore, run: Run, known: Known | None = None, until: int | None = None) -> Looked:
    """`until`: the number of the last record that counts."""
    return _looked(store, Looked(run, ()), glances(store, run.id, until=until), known or Known())


def look_again(store: SqlStore, before: Looked, after: int, until: int, known: Known) -> Looked:
    """As `look_at`, where nothing but what was written behind the number `after` is new: only the cases that have new
    records are read."""
    new = glances(store, before.run.id, after=after, until=until)
    told = {item.case for item in before.items}
    again = {glance.case for glance in new} & told
    if not again:
        return _looked(store, before, new, known)
    older = glances(store, before.run.id, until=after, cases=sorted(again))
    return _looked(store, before, [*older, *new], known, len(older))


def _looked(store: SqlStore, before: Looked, found: list[Glance], known: Known, counted: int = 0) -> Looked:
    """What was known with what was found, of which `counted` records are no new ones. An item keeps its place."""
    cases = known.cases(store, {glance.case for glance in found})
    facts = before.environments | facts_of(store, {g.environment for g in found} - before.environments.keys())
    ceilings = before.ceilings | {
        key: ceilings_of(store, own) for key, own in facts.items() if key not in before.ceilings
    }
    made = {item.key: item for item in items_of(found, cases, ceilings, known.names)}
    items = [made.pop(item.key, item) for item in before.items]
    newest = max((before.newest, *[glance.started for glance in found]))
    records = before.records + len(found) - counted
    return Looked(before.run, (*items, *made.values()), facts, ceilings, records, newest)


def items_at(store: SqlStore, run: Run, tasks: Sequence[str], known: Known) -> dict[str, Item]:
    """Those of these tasks alone, by key: for a page of a run in which every record is an item of its own."""
    found = _looked(store, Looked(run, ()), glances(store, run.id, tasks=tasks), known)
    return {item.key: item for item in found.items}


def item_at(store: SqlStore, run: Run, key: str, known: Known) -> Looked | None:
    """What belongs to the case of an item, which is named by its first task; None where there is no such task."""
    first = glances(store, run.id, tasks=[key])
    if not first:
        return None
    return _looked(store, Looked(run, ()), glances(store, run.id, cases=[first[0].case]), known)


def facts_of(store: Store, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Of environments; some records have none."""
    found = store.environments(sorted({*ids} - {""}))
    return {key: environment.facts for key, environment in found.items()}


def ceilings_of(store: Store, facts: dict[str, object]) -> Ceilings:
    """What was measured of a chip, and what its datasheet says."""
    measured = store.kept("peaks", kept_under(facts))
    threads = facts.get("threads")
    return Ceilings(
        convert(measured, Peaks) if measured else None,
        datasheet(chip(facts), threads if isinstance(threads, int) else None),
    )
