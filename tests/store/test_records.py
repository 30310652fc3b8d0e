"""Whole records of a task, samples included."""

from __future__ import annotations

from contextlib import closing

from msgspec.structs import replace

from opmark.store.records import records_of_task
from opmark.store.sql import open_sql


def test_a_task_has_the_records_of_its_processes_and_nothing_else(tmp_path, make_record, make_run):
    run = make_run()
    processes = [make_record(1, [1.0 + p], process=p) for p in range(3)]
    settings = replace(processes[0].task.settings, seed=7)
    seeded = replace(processes[0], task=replace(processes[0].task, settings=settings))
    with closing(open_sql(tmp_path / "db", create=True)) as store:
        store.begin(run)
        store.extend(run.id, [*processes, seeded, make_record(2, [1.0])])
        assert records_of_task(store, run.id, processes[0].task.id) == processes
        assert records_of_task(store, run.id, seeded.task.id) == [seeded]
        assert records_of_task(store, "unknown", processes[0].task.id) == []
