"""A stored run as pages show it: what `opmark report` draws and `opmark serve` serves."""

from __future__ import annotations

from contextlib import closing

from msgspec import convert

from opmark.analysis.items import items_of
from opmark.api.common import PathLike
from opmark.hardware.datasheets import datasheet
from opmark.interfaces import Store
from opmark.schema import Case, Run
from opmark.schema.item import Ceilings, Looked
from opmark.schema.peaks import Peaks, chip, kept_under
from opmark.store.find import find_run
from opmark.store.glances import glances
from opmark.store.open import open_sql
from opmark.store.sql import SqlStore


def look(run: str | None = None, *, db: PathLike | None = None) -> Looked:
    """A stored run: the last one, or one by its id (or the beginning of it) or its label."""
    with closing(open_sql(db)) as store:
        return look_at(store, find_run(store, run))


def look_at(store: SqlStore, run: Run, known: dict[str, Case] | None = None) -> Looked:
    """`known`: cases by their ids, read before; those that are missing are read and added."""
    found = glances(store, run.id)
    cases = {} if known is None else known
    cases.update(store.cases({glance.case for glance in found} - cases.keys()))
    facts = {
        key: environment.facts
        for key, environment in store.environments({g.environment for g in found if g.environment}).items()
    }
    ceilings = {key: ceilings_of(store, own) for key, own in facts.items()}
    items = items_of(found, cases, ceilings)
    return Looked(run, items, facts, ceilings, len(found), max((glance.started for glance in found), default=""))


def ceilings_of(store: Store, facts: dict[str, object]) -> Ceilings:
    """What was measured of a chip, and what its datasheet says."""
    measured = store.kept("peaks", kept_under(facts))
    threads = facts.get("threads")
    return Ceilings(
        convert(measured, Peaks) if measured else None,
        datasheet(chip(facts), threads if isinstance(threads, int) else None),
    )
