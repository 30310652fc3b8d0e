"""Stored runs as rows: what `opmark report` draws and `opmark serve` serves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from opmark.analysis.rows import Row, RowNames, RunView, make_rows
from opmark.analysis.step import with_shares
from opmark.api.result import facts_of, machine_facts
from opmark.schema import Case, Run
from opmark.schema.options import PathLike
from opmark.schema.record_head import RecordHead
from opmark.store.records import record_heads
from opmark.store.runs import find_run
from opmark.store.sql import SqlStore, open_sql


def view_run(run: str | None = None, *, db: PathLike | None = None) -> RunView:
    """Return a run by its id, the beginning of its id, or its label; without a name, the last one."""
    with closing(open_sql(db)) as store:
        return view_stored_run(store, find_run(store, run))


class CaseCache:
    """Cases and their names, which are the same in many runs, for a caller that shows several runs."""

    def __init__(self) -> None:
        self.names = RowNames()
        self._cases: dict[str, Case] = {}

    def cases(self, store: SqlStore, ids: set[str]) -> dict[str, Case]:
        """Return the cases with these ids, and perhaps more. Missing ones are read and added."""
        missing = ids - self._cases.keys()
        if missing:
            self._cases = {**self._cases, **store.cases(missing)}  # a new dict, because other threads read the old one
        return self._cases


def view_stored_run(
    store: SqlStore, run: Run, known: CaseCache | None = None, until: int | None = None, *, whole: bool = False
) -> RunView:
    """Return the rows of a run up to record number `until`. `whole`: read samples too, so that rows have their
    records."""
    return _view(store, RunView(run, ()), record_heads(store, run.id, until=until, whole=whole), known or CaseCache())


def refresh_view(store: SqlStore, before: RunView, after: int, until: int, known: CaseCache) -> RunView:
    """Bring a view up to date. Records up to number `after` are in it already, so only cases with newer records are
    read."""
    new = record_heads(store, before.run.id, after=after, until=until)
    again = {head.case for head in new} & {row.case for row in before.rows}
    if not again:
        return _view(store, before, new, known)
    older = record_heads(store, before.run.id, until=after, cases=sorted(again))
    return _view(store, before, [*older, *new], known, len(older))


def _view(
    store: SqlStore,
    before: RunView,
    heads: list[RecordHead],
    known: CaseCache,
    counted: int = 0,
    *,
    every: bool = True,
) -> RunView:
    """Add the rows of these heads to a view, which has counted the first `counted` of them. A row keeps its place.
    `every`: the view has all rows of the run."""
    cases = known.cases(store, {head.case for head in heads})
    facts = before.environments | facts_of(store, {head.environment for head in heads} - before.environments.keys())
    machines = before.machines | {
        key: machine_facts(store, own) for key, own in facts.items() if key not in before.machines
    }
    made = {row.key: row for row in make_rows(heads, cases, machines, known.names)}
    rows = [made.pop(row.key, row) for row in before.rows]
    newest = max((before.newest, *[head.started for head in heads]))
    records = before.records + len(heads) - counted
    shown = [*rows, *made.values()]
    whole = tuple(with_shares(shown)) if every else tuple(shown)
    return RunView(before.run, whole, facts, machines, records, newest)


def rows_at(store: SqlStore, run: Run, tasks: Sequence[str], known: CaseCache) -> dict[str, Row]:
    """Return the rows of these tasks by key: for a page of a run in which every record is a row of its own."""
    found = _view(store, RunView(run, ()), record_heads(store, run.id, tasks=tasks), known, every=False)
    return {row.key: row for row in found.rows}


def case_view(store: SqlStore, run: Run, key: str, known: CaseCache) -> RunView | None:
    """Return the rows of the case to which the task `key` belongs; None if the run has no such task."""
    first = record_heads(store, run.id, tasks=[key])
    if not first:
        return None
    return _view(store, RunView(run, ()), record_heads(store, run.id, cases=[first[0].case]), known, every=False)
