"""What became of runs, counted by the database: records are not read for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from sqlalchemy import func, select

from opmark.interfaces import Store
from opmark.schema import Run
from opmark.schema.peaks import chip
from opmark.schema.run_summary import RunSummary
from opmark.store.sql import SqlStore
from opmark.store.tables import BENCH_CASE, RECORD, RUN

_AT_ONCE = 500
"""Values in one statement: databases limit how many one takes."""


class _Group(NamedTuple):
    """Records of a run that are alike."""

    run: str
    backend: str
    environment: str
    status: str
    number: int
    newest: int = 0
    """The number of the last of them."""


_BY = (RECORD.c.run_id, RECORD.c.backend, RECORD.c.environment_id, RECORD.c.status)


def summaries(store: Store, runs: Sequence[Run]) -> list[RunSummary]:
    """In the order of the runs."""
    return [summary for summary, _ in marked_summaries(store, runs)]


def marked_summaries(store: Store, runs: Sequence[Run]) -> list[tuple[RunSummary, int]]:
    """In the order of the runs, each with the number of its last record; 0 where it has none, or nobody counts."""
    sql = _sql(store)
    groups = _read(store, runs) if sql is None else _counted(sql, runs)
    environments = store.environments({group.environment for group in groups if group.environment})
    facts = {key: environment.facts for key, environment in environments.items()}
    by_run: dict[str, list[_Group]] = {}
    for group in groups:
        by_run.setdefault(group.run, []).append(group)
    own = [by_run.get(run.id, []) for run in runs]
    return [
        (_summary(run, some, facts), max((group.newest for group in some), default=0))
        for run, some in zip(runs, own, strict=True)
    ]


def having(store: Store, op: str) -> set[str]:
    """The ids of the runs that have something of an operator; its name may have `*` and `?`."""
    sql = _sql(store)
    if sql is None:
        return {run.id for run in store.runs() for r in store.records(run.id) if fnmatchcase(r.task.case.op, op)}
    found: set[str] = set()
    with sql.reading() as connection:
        known = connection.execute(select(BENCH_CASE.c.id, BENCH_CASE.c.op))
        wanted = [key for key, name in known if fnmatchcase(name, op)]
        for some in _parts(wanted):
            found |= set(
                connection.execute(select(RECORD.c.run_id).where(RECORD.c.case_id.in_(some)).distinct()).scalars()
            )
    return found


def with_backend(store: SqlStore, backend: str) -> set[str]:
    """The ids of the runs that have a record of a backend: an index tells, a look a run."""
    there = select(RECORD.c.number).where(RECORD.c.run_id == RUN.c.id, RECORD.c.backend == backend).exists()
    with store.reading() as connection:
        return set(connection.execute(select(RUN.c.id).where(there)).scalars())


def _sql(store: Store) -> SqlStore | None:
    """The database behind a store, if there is one."""
    inner = getattr(store, "store", store)
    return inner if isinstance(inner, SqlStore) else None


def _counted(store: SqlStore, runs: Sequence[Run]) -> list[_Group]:
    found: list[_Group] = []
    with store.reading() as connection:
        for some in _parts([run.id for run in runs]):
            query = select(*_BY, func.count(), func.max(RECORD.c.number))
            query = query.where(RECORD.c.run_id.in_(some)).group_by(*_BY).order_by(*_BY)
            found += [_Group(*row) for row in connection.execute(query)]
    return found


def _read(store: Store, runs: Sequence[Run]) -> list[_Group]:
    counts = Counter(
        (run.id, r.task.backend, r.environment, str(r.status)) for run in runs for r in store.records(run.id)
    )
    return [_Group(*who, count) for who, count in counts.items()]


def _summary(run: Run, groups: Sequence[_Group], facts: dict[str, dict[str, Any]]) -> RunSummary:
    statuses: Counter[str] = Counter()
    for group in groups:
        statuses[group.status] += group.number
    known = [facts[group.environment] for group in groups if group.environment in facts]
    return RunSummary(
        run,
        dict(statuses),
        _distinct(group.backend for group in groups),
        _distinct(str(one["machine"]) for one in known if one.get("machine")),
        _distinct(map(chip, known)),
    )


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _parts(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE)]
