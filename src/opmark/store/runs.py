"""Find runs by name, and summarise them by counts of the database, without reading records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from msgspec import convert
from sqlalchemy import func, select

from opmark.errors import UnknownName, UserError
from opmark.schema import Run
from opmark.schema.case import PLUGIN_OPERATOR, is_operator
from opmark.schema.machine import NoiseFloor, chip, findings_key
from opmark.schema.run import RunSummary
from opmark.store.protocol import Store
from opmark.store.sql import SqlStore
from opmark.store.tables import BENCH_CASE, RECORD, RUN
from opmark.units import count_noun

_AT_ONCE = 500
"""Values in one statement, which databases limit."""


class _StatusCount(NamedTuple):
    """Number of records of a run with the same backend, environment and status."""

    run: str
    backend: str
    environment: str
    status: str
    number: int
    newest: int = 0
    """Number of the last of these records."""


_BY = (RECORD.c.backend, RECORD.c.environment_id, RECORD.c.status)


def summaries(store: Store, runs: Sequence[Run]) -> list[RunSummary]:
    """Return the summaries of runs, in their order."""
    return [summary for summary, _ in marked_summaries(store, runs)]


def marked_summaries(store: Store, runs: Sequence[Run]) -> list[tuple[RunSummary, int]]:
    """Return the summaries of runs, in their order, each with the number of its last record; 0 if it has none or the
    store has no numbers."""
    sql = _sql(store)
    groups = _count_in_memory(store, runs) if sql is None else _count_records(sql, runs)
    environments = store.environments({group.environment for group in groups if group.environment})
    facts = {key: environment.facts for key, environment in environments.items()}
    by_run: dict[str, list[_StatusCount]] = {}
    for group in groups:
        by_run.setdefault(group.run, []).append(group)
    own = [by_run.get(run.id, []) for run in runs]
    return [
        (_summary(run, some, facts), max((group.newest for group in some), default=0))
        for run, some in zip(runs, own, strict=True)
    ]


def having(store: Store, op: str) -> set[str]:
    """Return the ids of runs that measured an operator; its name may contain `*` and `?`."""
    sql = _sql(store)
    if sql is None:
        return {run.id for run in store.runs() for r in store.records(run.id) if is_operator(r.task.case, op)}
    found: set[str] = set()
    registered = select(BENCH_CASE.c.id).where(BENCH_CASE.c.op == PLUGIN_OPERATOR)
    with sql.reading() as connection:
        known = connection.execute(select(BENCH_CASE.c.id, BENCH_CASE.c.op))
        wanted = [key for key, name in known if fnmatchcase(name, op)]
        ids = connection.execute(registered).scalars().all()
    wanted += [key for key, case in sql.cases(ids).items() if is_operator(case, op)]
    with sql.reading() as connection:
        for some in _parts(wanted):
            found |= set(
                connection.execute(select(RECORD.c.run_id).where(RECORD.c.case_id.in_(some)).distinct()).scalars()
            )
    return found


def with_backend(store: SqlStore, backend: str) -> set[str]:
    """Return the ids of runs with a record of a backend, by one index look-up per run."""
    with store.reading() as connection:
        run = store.run_column(connection, *connection.execute(select(RUN.c.id)).scalars())
        there = select(RECORD.c.number).where(run == RUN.c.id, RECORD.c.backend == backend).exists()
        return set(connection.execute(select(RUN.c.id).where(there)).scalars())


def _sql(store: Store) -> SqlStore | None:
    """Return the database behind a store, if there is one."""
    inner = getattr(store, "store", store)
    return inner if isinstance(inner, SqlStore) else None


def _count_records(store: SqlStore, runs: Sequence[Run]) -> list[_StatusCount]:
    found: list[_StatusCount] = []
    with store.reading() as connection:
        for some in _parts([run.id for run in runs]):
            run = store.run_column(connection, *some)
            by = (run, *_BY)
            query = select(*by, func.count(), func.max(RECORD.c.number))
            query = query.where(run.in_(some)).group_by(*by).order_by(*by)
            found += [_StatusCount(*row) for row in connection.execute(query)]
    return found


def _count_in_memory(store: Store, runs: Sequence[Run]) -> list[_StatusCount]:
    counts = Counter(
        (run.id, r.task.backend, r.environment, str(r.status)) for run in runs for r in store.records(run.id)
    )
    return [_StatusCount(*who, count) for who, count in counts.items()]


def _summary(run: Run, groups: Sequence[_StatusCount], facts: dict[str, dict[str, Any]]) -> RunSummary:
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


_NTH = re.compile(
    r"(?P<label>.+)(~(?P<back>\d+)|@(?P<brace>\{)?(-(?P<before>\d+)|(?P<date>\d[\d\-TZ:.+]*))(?(brace)\}))"
)
"""One of several runs with the same label: `LABEL~1`, `LABEL@{-1}` or `LABEL@{2026-11-15}`; the braces may be left
out."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d((?P<time>T[\d:.]+)(Z|[+-]\d\d:\d\d)?)?")
_PRECISION = {
    "": ("seconds", timedelta(days=1)),
    "T00": ("seconds", timedelta(hours=1)),
    "T00:00": ("seconds", timedelta(minutes=1)),
    "T00:00:00": ("seconds", timedelta(seconds=1)),
    "T00:00:00.000": ("milliseconds", timedelta(milliseconds=1)),
    "T00:00:00.000000": ("microseconds", timedelta(microseconds=1)),
}
"""How its limits are written and how long it lasts, by the form of the time behind a date."""


def names_one_of_several(text: str) -> bool:
    """Return whether a name means one of several runs: by a label with a number or a date, or by a date alone."""
    return bool(_NTH.fullmatch(text) or _DATE.fullmatch(text))


def label_in(name: str) -> str:
    """Return the label in `LABEL~1`, `LABEL@{-1}` or `LABEL@{2026-11-15}`; any other name as it is."""
    parts = _NTH.fullmatch(name)
    return parts["label"] if parts else name


def check_name(name: str) -> None:
    """Raise UserError for a label with braces in which stands neither a number nor a date: no run can be meant."""
    label, braces, rest = name.rpartition("::")[2].partition("@{")
    parts = _NTH.fullmatch(name.rpartition("::")[2])
    if parts and parts["date"] and _period(parts["date"]) is None:
        raise _no_date(name, parts["label"], parts["date"])
    if braces and not parts:
        raise UserError(
            f"`{name}`: expected a number or a date in braces, got `{rest.removesuffix('}')}`",
            f"as in `{label}@{{-1}}`, the run before the newest, or `{label}@{{2026-11-15}}`",
        )


def _no_date(name: str, label: str, date: str) -> UserError:
    return UserError(
        f"`{name}`: expected a date or a time, or -1, got `{date}`", f"as in `{label}@{{2026-11-15}}`, "
        f"`{label}@{{2026-11-15T18:00+01:00}}` (without an offset in UTC), or `{label}@{{-1}}`",
    )  # fmt: skip


def _period(text: str) -> tuple[str, str] | None:
    """Return the begin and the end of a day, an hour, a minute or less, in UTC, as texts that can be compared with the
    start of a run; None if the text is no date."""
    parts = _DATE.fullmatch(text)
    precision = _PRECISION.get(re.sub(r"\d", "0", parts["time"] or "")) if parts else None
    if precision is None:
        return None
    timespec, length = precision
    try:
        begin = datetime.fromisoformat(text.replace("Z", "+00:00"))
        if begin.tzinfo:
            begin = begin.astimezone(timezone.utc).replace(tzinfo=None)
        return begin.isoformat(timespec=timespec), (begin + length).isoformat(timespec=timespec)
    except (ValueError, OverflowError):  # for example a month 13
        return None


def _begun_in(known: Sequence[Run], date: str) -> list[Run]:
    """Return the runs that began on a day, or within an hour, a minute or less."""
    period = _period(date)
    return [run for run in known if period and period[0] <= run.started < period[1]]


def find_run(store: Store, name: str | None, *, to_change: bool = False) -> Run:
    """Find a run by its id, the beginning of its id, its label or its date; without a name, the last one.

    A label or a date is the name of the newest run that has it. `LABEL~1` and `LABEL@{-1}` are the run with this label
    before that one, `LABEL@{2026-11-15}` is the newest that had begun by the end of that day (UTC); the braces may be
    left out. A run that is `to_change` may not be meant by a label or a date of several.
    """
    if name is not None and not name.strip():
        raise UserError("a run is named by an empty text", "give its id, the beginning of that, or its label")
    known = store.runs()
    if to_change and name:
        labelled = [run.id for run in known if run.label == name]
        alike = labelled or [run.id for run in _begun_in(known, name)]
        if len(alike) > 1:
            listed = ", ".join(alike[:5]) + (", ..." if len(alike) > 5 else "")
            newest = f"; or `{name}~0` for the newest of them, `{name}~1` for the one before" if labelled else ""
            what = "label" if labelled else "date"
            raise UserError(f"the {what} `{name}` is of {len(alike)} runs: {listed}", f"give an id{newest}")
    return find_among(known, name)


def find_among(known: Sequence[Run], name: str | None) -> Run:
    """Find a run among those that were read already, newest first."""
    if not known:
        raise UserError("the store holds no run yet", "`opmark run --suite quick` makes one")
    if name is None:
        return known[0]
    if found := next((run for run in known if run.id == name), None) or _find_labelled(known, name):
        return found
    starting = [run for run in known if run.id.startswith(name)]
    if len(starting) == 1:
        return starting[0]
    if starting:
        listed = ", ".join(run.id for run in starting[:5])
        raise UserError(f"`{name}` begins {len(starting)} runs: {listed}", "give more of the id, or a label")
    labels = dict.fromkeys(run.label for run in known if run.label)
    raise UnknownName("run", name, [*labels, *(run.id for run in known)])


def _find_labelled(known: Sequence[Run], name: str) -> Run | None:
    """Find a run by its label, by a label with a number or a date, or by its date; UserError if a label has no such
    run."""
    if found := next((run for run in known if run.label == name), None):
        return found
    if _DATE.fullmatch(name):
        return next(iter(_begun_in(known, name)), None)
    parts = _NTH.fullmatch(name)
    labelled = [run for run in known if parts and run.label == parts["label"]]
    if not parts or not labelled:
        return None
    label, count = parts["label"], count_noun(len(labelled), "run")
    if date := parts["date"]:
        period = _period(date)
        if period is None:
            raise _no_date(name, label, date)
        if earlier := next((run for run in labelled if run.started < period[1]), None):
            return earlier
        raise UserError(
            f"`{name}`: {count} with the label `{label}`, none of them by then",
            f"the oldest is {labelled[-1].id}, begun {labelled[-1].started}",
        )
    back = int(parts["back"] or parts["before"])
    if back >= len(labelled):
        oldest = len(labelled) - 1
        form = f"~{oldest}" if parts["back"] else f"@{{-{oldest}}}" if oldest else ""
        raise UserError(f"`{name}`: the label `{label}` is of {count}", f"`{label}{form}` is the oldest")
    return labelled[back]


def noise_under(backend: Any, facts: dict[str, Any]) -> str:
    """Return the key under which the noise floor of a backend is stored."""
    return f"{backend} on {findings_key(facts)}"


def noise_of(store: Store, facts: dict[str, Any]) -> NoiseFloor | None:
    """Return the noise floor of the backend of an environment, if `doctor --aa` has measured it."""
    kept = store.kept("noise", noise_under(facts.get("backend"), facts))
    return convert(kept, NoiseFloor) if kept else None
