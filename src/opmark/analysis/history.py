"""Make series of stored runs, find where their level changed, and what else changed there.

A series has the values of one case, way and quantity on one machine, run after run.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from statistics import median
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.analysis.agreement import node_group
from opmark.analysis.environment import Machine, differing, machine_of
from opmark.analysis.noise_floor import LEAST, RUNS, deviations, spread
from opmark.analysis.rows import case_parameters
from opmark.errors import UnknownName, UserError
from opmark.plugin.registry import operator as find_operator
from opmark.schema import FAILED, QUANTITIES, Case, Run
from opmark.schema.case import PLUGIN_OPERATOR, is_operator, shown_case
from opmark.schema.history import Histories, History, HistoryPoint, LevelChange, Outage, RunAt
from opmark.schema.machine import NoiseFloor
from opmark.schema.measurement import PREEMPTED, Cache, is_clocked
from opmark.schema.record import COUNTED, Figure, SeriesKey
from opmark.stats import geometric_mean, log_interval
from opmark.stats.change_point import MARGIN, SHORTEST, Change, describe_series, early_warning
from opmark.store.protocol import Store
from opmark.store.runs import noise_of

FEWEST = 2 * SHORTEST
"""Runs that a series needs before its level is judged."""
SHARE = 0.01
"""Allowed share of false changes among those that are listed, if nights are independent."""
BY_CHANCE = 0.002
"""Share of unchanged series that are listed if nights are not independent: simulated over 100 nights with an
autocorrelation of 30 %, and one night of fifty an outlier."""
_AT_ONCE = 500
_MOST_RUNS_READ = 3
"""Newest runs of each plan that are read for their cases at most: one may have been cut short."""
_ID = re.compile("[0-9a-f]{16}").fullmatch


@dataclass(frozen=True)
class HistoryQuery:
    """Selects series; an empty query selects all of them."""

    ops: Sequence[str] = ()
    """Names of operators, also with `*` and `?`."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """A value, or a list of values, by name."""
    case: str = ""
    """Id of a case, or its beginning."""
    backends: Sequence[str] = ()
    phases: Sequence[str] = ()
    quantity: str = ""
    """Empty: the headline of each. `all`: every quantity."""
    label: str = ""
    """Labels of runs, also with `*` and `?`."""
    since: str = ""
    """ISO 8601, UTC."""
    last: int | None = None
    """Number of newest runs to use."""
    sessions: bool = False
    """Include runs that were measured in turns. By default they are left out, because their sides differ on purpose."""

    @property
    def named(self) -> bool:
        """Whether the query names cases, so that all of them are shown and not only those that changed."""
        return bool(self.ops or self.case or self.params)


def histories(
    store: Store,
    query: HistoryQuery,
    *,
    everything: bool = False,
    margin: float = MARGIN,
    begin: Callable[[int], None] = lambda cases: None,
) -> Histories:
    """Return the series that the query names, or else those that changed or are out of line (with `everything`, all),
    the newest change first.

    Cases are read one at a time, so that a store of any size fits into memory. `begin` is called with their number.
    """
    _check(query)
    runs = followed(store.runs(), query)
    if not runs:
        raise UserError("no run is left to follow", _why_none(query))
    cases = _find_cases(store, runs, query)
    if query.named and not cases:
        raise UserError(f"no stored case is {_described(query)}", "`opmark show` lists those of a run")
    begin(len(cases))
    looked = short = drifting = alternating = 0
    chances: list[float] = []
    kept: list[History] = []
    for history in _follow_cases(store, runs, cases, query, margin):
        long = len(history.points) >= FEWEST
        looked, short = looked + long, short + (not long)
        drifting, alternating = drifting + (history.drift is not None), alternating + (history.states is not None)
        chances += [min((change.p for change in history.changes if change.settled), default=1.0)] if long else []
        if query.named or history.changes or history.warning or (everything and long):
            kept.append(history)
    if not looked + short:
        wanted = _described(query) or "anything"
        raise UserError(f"no run has measured {wanted}", "`opmark show RUN` tells what a run has")
    judged = _mark_sure(kept, _threshold(chances))
    changes = [change for history in judged for change in history.changes]
    unsure, unsettled = (
        sum(change.settled == settled and not change.sure for change in changes) for settled in (True, False)
    )
    if not (query.named or everything):
        judged = [one for one in judged if one.warning or any(change.sure for change in one.changes)]
    return Histories(
        sorted(judged, key=_newest_first, reverse=True), looked, short, unsure, BY_CHANCE * looked, unsettled,
        drifting, alternating,
    )  # fmt: skip


def followed(runs: Iterable[Run], query: HistoryQuery) -> list[Run]:
    """Return the runs that count, oldest first; a merged store holds them in another order."""
    kept = [
        run
        for run in runs
        if (query.sessions or not run.session)
        and (not query.label or fnmatchcase(run.label, query.label))
        and run.started >= query.since
    ]
    kept.sort(key=lambda run: (run.started, run.id))
    return kept if query.last is None else kept[-query.last :]


def _check(query: HistoryQuery) -> None:
    if query.quantity and query.quantity != ALL and query.quantity not in QUANTITIES:
        raise UnknownName("quantity", query.quantity, [*QUANTITIES, ALL])
    if query.last is not None and query.last < 1:
        raise UserError(f"last: expected 1 or more, got {query.last}", f"a change takes {FEWEST} runs at least")


def _why_none(query: HistoryQuery) -> str:
    if query.label:
        return f"none has a label like `{query.label}`; `opmark runs` lists them"
    if query.since:
        return f"none was started since {query.since}"
    return "`opmark run` makes one" + (
        "" if query.sessions else "; --sessions takes those that were measured in turns too"
    )


def _described(query: HistoryQuery) -> str:
    parts = [", ".join(query.ops), *(f"{name}={value}" for name, value in query.params.items())]
    parts += [f"of the id {query.case}" if query.case else "", *query.backends, *query.phases, query.quantity]
    return " ".join(filter(None, parts))


def _find_cases(store: Store, runs: Sequence[Run], query: HistoryQuery) -> dict[str, Case]:
    names: list[str] = []
    if _ID(query.case):
        ids = [query.case]
    else:
        names = [_resolve(name) for name in query.ops]
        ids = [
            key
            for key, op in _stored_cases(store, runs).items()
            if key.startswith(query.case)
            and (not names or op == PLUGIN_OPERATOR or any(fnmatchcase(op, name) for name in names))
        ]
    found: dict[str, Case] = {}
    for part in _chunks(ids, _AT_ONCE):
        found |= store.cases(part)
    return {
        key: case
        for key, case in found.items()
        if _fits(case, query)
        and (not names or case.op != PLUGIN_OPERATOR or any(is_operator(case, name) for name in names))
    }


def _stored_cases(store: Store, runs: Sequence[Run]) -> dict[str, str]:
    """Return the operator of every case by its id. Runs of one plan have the same cases, so the newest ones are read.

    Runs without a plan, such as those of `calibrate`, are also grouped by label and number of tasks.
    """
    by_plan: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        by_plan.setdefault((run.plan, run.label, run.tasks), []).append(run)
    found: dict[str, str] = {}
    for among in by_plan.values():
        for run in among[: -_MOST_RUNS_READ - 1 : -1]:
            figures = store.figures(runs=[run.id])
            found |= {figure.case: figure.op for figure in figures}
            if len({(figure.series[:4], figure.process) for figure in figures}) >= run.tasks:
                break
    return found


def _chunks(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _resolve(name: str) -> str:
    """Return the operator of an alias; a pattern or an operator that is not installed is returned unchanged."""
    try:
        return find_operator(name).name
    except UserError:
        return name


def _fits(case: Case, query: HistoryQuery) -> bool:
    if query.phases and case.phase not in query.phases:
        return False
    return all(name in case.params and _one_of(case.params[name], value) for name, value in query.params.items())


def _one_of(value: Any, wanted: Any) -> bool:
    return bool(value == wanted) or (isinstance(wanted, list | tuple) and value in wanted)


def _follow_cases(
    store: Store, runs: Sequence[Run], cases: Mapping[str, Case], query: HistoryQuery, margin: float
) -> Iterator[History]:
    counted = {run.id: at(run) for run in runs}
    facts: dict[str, dict[str, Any]] = {}
    machines: dict[str, Machine] = {}
    noise: dict[str, NoiseFloor | None] = {}
    for key, case in cases.items():
        figures = store.figures(case=key)
        if query.backends:
            figures = [figure for figure in figures if any(fnmatchcase(figure.backend, b) for b in query.backends)]
        new = {figure.environment for figure in figures if figure.environment} - facts.keys()
        if new:
            facts |= {name: environment.facts for name, environment in store.environments(new).items()}
            machines |= {
                name: (*machine_of(facts[name]), node_group(store, facts[name])) for name in new & facts.keys()
            }
        for line in lines_of(figures, counted, machines, query.quantity):
            environment = line.values[-1].point.environment
            if environment not in noise:
                noise[environment] = noise_of(store, facts.get(environment, {}))
            yield _history(line, case, facts, _floor(line, noise[environment]), margin)


def _floor(line: MachineSeries, noise: NoiseFloor | None) -> float:
    """Return the noise floor that `doctor --aa` measured, else the spread of processes in the newest runs of this
    series, else 0."""
    series = line.series
    if noise and series.quantity in QUANTITIES and QUANTITIES[series.quantity].unit == "s":
        centre = median([value.point.value for value in line.values])
        measured = noise.floor_for(centre, series.quantity, series.cache or "")
        if measured is not None:
            return measured
    known = [one for value in line.values[-RUNS:] for one in deviations(value.medians)]
    return spread(known) if len(known) >= LEAST else 0.0


def _history(
    line: MachineSeries, case: Case, facts: Mapping[str, dict[str, Any]], floor: float, margin: float
) -> History:
    series = line.series
    values = [value.point.value for value in line.values]
    enough = len(values) >= FEWEST
    steady = floor / math.sqrt(median([value.point.processes for value in line.values]))  # of the mean of one run
    shape = describe_series(values, steady, margin)
    changes = shape.changes
    begins = [0, *(change.at for change in changes)]
    level = values[begins[-1] :]
    return History(
        case=series.case,
        op=shown_case(case).op,
        params=case_parameters(case),
        phase=case.phase,
        backend=series.backend,
        implementation=series.implementation,
        threads=series.threads,
        quantity=series.quantity,
        cache=series.cache,
        chip=line.chip,
        points=tuple(value.point for value in line.values),
        level=median(level[:-1] or level),
        changes=tuple(
            _level_change(change, since, until, line, facts)
            for change, since, until in zip(changes, begins, [*begins[2:], len(values)], strict=False)
        ),
        outages=tuple(line.outages),
        floor=floor,
        warning=enough and early_warning(values, steady, margin),
        states=(shape.states.low, shape.states.high) if shape.states else None,
        load=series.load,
        drift=shape.drift,
    )


def _level_change(
    change: Change, since: int, until: int, line: MachineSeries, facts: Mapping[str, dict[str, Any]]
) -> LevelChange:
    """Describe a change. `since` is the index at which the old level began, `until` the one before which the new level
    ends."""
    old = [value.point for value in line.values[since : change.at]]
    new = [value.point for value in line.values[change.at : until]]
    before, after = old[-1], line.values[change.at].point
    return LevelChange(
        before=before.run,
        after=after.run,
        level_before=change.before,
        level_after=change.after,
        ratio=change.ratio,
        low=change.low,
        high=change.high,
        p=change.p,
        settled=change.settled,
        clocks=_clocks(old, new),
        differing=_new_facts([facts.get(key, {}) for key in _environments(old)], facts.get(after.environment, {})),
    )


def _clocks(old: Sequence[HistoryPoint], new: Sequence[HistoryPoint]) -> tuple[float, float] | None:
    """Return the median clock of each level, where all runs of both know theirs."""
    a, b = ([point.clock for point in points if point.clock] for points in (old, new))
    return (median(a), median(b)) if len(a) == len(old) and len(b) == len(new) else None


def _environments(points: Iterable[HistoryPoint]) -> list[str]:
    """Return the distinct environments of the points, that of the last point last."""
    return list(dict.fromkeys(point.environment for point in reversed(list(points))))[::-1]


def _new_facts(old: Sequence[dict[str, Any]], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the facts that no run of the old level had: a host name that changes every night explains nothing."""
    found = differing([(old[-1], new)])
    for facts in old[:-1]:
        found = {fact: found[fact] for fact in found if fact in differing([(facts, new)])}
    return found


def _threshold(chances: Sequence[float]) -> float:
    """Return the threshold of Benjamini and Hochberg: at most a share SHARE of the p-values up to it is chance."""
    ordered = sorted(chances)
    below = [p for i, p in enumerate(ordered, 1) if p <= SHARE * i / len(ordered)]
    return below[-1] if below else 0.0


def _mark_sure(found: Sequence[History], threshold: float) -> list[History]:
    return [
        replace(
            one,
            changes=tuple(replace(change, sure=change.settled and change.p <= threshold) for change in one.changes),
        )
        for one in found
    ]


def _newest_first(history: History) -> tuple[str, str]:
    change = history.newest_change
    return change.after.started if change else "", history.points[-1].run.started


ALL = "all"
"""Selects every quantity; each of them is a series."""

Way = tuple[str, str, int, str]
"""Backend, implementation, threads and load."""
Key = tuple[str, Cache | None]
"""A quantity and the state of the caches."""
Machines = Mapping[str, Machine]
"""The machine of each environment, by its id."""
_UNKNOWN: Machine = ("unknown", "cpu")
Groups = dict[tuple[SeriesKey, Machine], dict[str, list[Figure]]]
"""Figures of each run, by series and machine."""


class RunValue(NamedTuple):
    """The value of a run in a series."""

    point: HistoryPoint
    medians: tuple[float, ...]
    """Medians of its processes."""


@dataclass
class MachineSeries:
    """A series on one machine, oldest run first."""

    series: SeriesKey
    op: str
    chip: str
    values: list[RunValue]
    outages: list[Outage] = field(default_factory=list)


def lines_of(
    figures: Sequence[Figure], runs: Mapping[str, RunAt], machines: Machines, quantity: str = ""
) -> list[MachineSeries]:
    """Return the series of one case. `runs` are the runs that count, by id, oldest first. Without a quantity, each way
    is followed in its headline.

    Failed and preempted processes are listed as outages and give no value.
    """
    among = [figure for figure in figures if figure.run in runs]
    headlines = {} if quantity else _headlines(among)
    groups: Groups = {}
    for figure in among:
        followed = quantity in (ALL, figure.quantity) if quantity else headlines.get(_way(figure)) == _key(figure)
        if followed and _usable(figure):
            key = (figure.series, machines.get(figure.environment, _UNKNOWN))
            groups.setdefault(key, {}).setdefault(figure.run, []).append(figure)
    without = [figure for figure in among if figure.status in FAILED or PREEMPTED in figure.cautions]
    found = []
    for (series, machine), by_run in groups.items():
        values = [_value(run, by_run[key]) for key, run in runs.items() if key in by_run]
        here = [f for f in without if not f.environment or machines.get(f.environment, _UNKNOWN) == machine]
        found.append(
            MachineSeries(series, next(iter(by_run.values()))[0].op, machine[0], values, _outages(here, series, runs))
        )
    return found


def at(run: Run) -> RunAt:
    return RunAt(run.id, run.started, run.label, run.revision)


def _way(figure: Figure) -> Way:
    return figure.backend, figure.implementation, figure.threads, figure.load


def _key(figure: Figure) -> Key:
    return figure.quantity, figure.cache


def _usable(figure: Figure) -> bool:
    whole = figure.median is not None and math.isfinite(figure.median) and figure.median > 0
    return figure.status in COUNTED and whole and PREEMPTED not in figure.cautions


def _headlines(figures: Iterable[Figure]) -> dict[Way, Key]:
    """Return the key that most records of each way measured first; if several are equal, the latest."""
    first: dict[tuple[str, Way, int], Key] = {}
    for figure in figures:
        if figure.quantity:
            first.setdefault((figure.run, _way(figure), figure.process), _key(figure))
    counts: dict[Way, Counter[Key]] = {}
    for (_, way, _), key in first.items():
        counts.setdefault(way, Counter())[key] += 1
    return {way: max(reversed(list(counter)), key=counter.__getitem__) for way, counter in counts.items()}


def _value(run: RunAt, figures: Sequence[Figure]) -> RunValue:
    medians = tuple(figure.median for figure in figures if figure.median is not None)
    counts = [figure.cycles for figure in figures if figure.cycles]
    clocked = len(counts) == len(medians) and is_clocked(figures[0].quantity)
    centre = geometric_mean(medians)
    clock = geometric_mean(counts) / centre if clocked else None
    point = HistoryPoint(run, centre, len(medians), figures[-1].environment, clock=clock)
    if len(medians) > 1:
        interval = log_interval(medians)
        point = replace(point, low=interval.low, high=interval.high)
    return RunValue(point, medians)


def _outages(figures: Iterable[Figure], series: SeriesKey, runs: Mapping[str, RunAt]) -> list[Outage]:
    """Return the outages of the same way, once per run, in the order of the runs."""
    way = (series.backend, series.implementation, series.threads, series.load)
    found: dict[tuple[str, str], Outage] = {}
    for figure in figures:
        if _way(figure) != way:
            continue
        if figure.status in FAILED:
            found[figure.run, figure.status] = Outage(runs[figure.run], figure.status)
        elif _key(figure) == (series.quantity, series.cache):
            found[figure.run, PREEMPTED] = Outage(runs[figure.run], "preempted")
    return sorted(found.values(), key=lambda outage: (outage.run.started, outage.run.id))
