from __future__ import annotations

from contextlib import closing

from msgspec.structs import replace
from opmark.analysis.items import items_of
from opmark.store.glances import glances
from opmark.store.whole import records_behind

from opmark.store.open import open_sql


def test_behind_an_item_are_its_processes_and_nothing_else(tmp_path, make_record, make_run):
    run = make_run()
    processes = [make_record(1, [1.0 + p], process=p) for p in range(3)]
    settings = replace(processes[0].task.settings, seed=7)
    seeded = replace(processes[0], task=replace(processes[0].task, settings=settings))
    with closing(open_sql(tmp_path / "db", create=True)) as store:
        store.begin(run)
        store.extend(run.id, [*processes, seeded, make_record(2, [1.0])])
        found = glances(store, run.id)
        items = items_of(found, store.cases({glance.case for glance in found}), {})
        assert [records_behind(store, item) for item in items[:2]] == [processes, [seeded]]
        assert records_behind(store, replace(items[0], run="unknown")) == []
