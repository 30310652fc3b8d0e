"""Stored runs -> where the level of a series changed, and what else changed there."""

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

from opmark.analysis.environment import Machine, differing, machine_of
from opmark.analysis.noise_floor import LEAST, RUNS, deviations, spread
from opmark.errors import UnknownName, UserError
from opmark.plugin.param import format_params
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.registry import parameters_of
from opmark.schema import FAILED, QUANTITIES, Case, Run
from opmark.schema.history import Histories, History, HistoryPoint, LevelChange, Outage, RunAt
from opmark.schema.machine import NoiseFloor
from opmark.schema.measurement import PREEMPTED, Cache
from opmark.schema.record import Figure, SeriesKey
from opmark.stats import log_interval
from opmark.stats.change_point import MARGIN, SHORTEST, Change, change_points, early_warning
from opmark.store.protocol import Store
from opmark.store.runs import noise_of

FEWEST = 2 * SHORTEST
"""Runs that a series needs before anything is said of its level."""
SHARE = 0.01
"""Share of false ones among the changes that are listed, were nights independent of each other."""
BY_CHANCE = 0.002
"""Share of series that are listed although nothing changed, where they are not: simulated over 100 nights of which each
carries 30 % of the one before, one night of fifty an outlier."""
_AT_ONCE = 500
_ASKED = 3
"""Number of newest runs of each plan that are asked for their cases at most: one may have been cut short."""
_ID = re.compile("[0-9a-f]{16}").fullmatch


@dataclass(frozen=True)
class HistoryQuery:
    """Which series; nothing: all of them."""

    ops: Sequence[str] = ()
    """Names of operators, also with `*` and `?`."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """A value, or a list of values, by name."""
    case: str = ""
    """Its id, or the beginning of it."""
    backends: Sequence[str] = ()
    phases: Sequence[str] = ()
    quantity: str = ""
    """None: the headline of each. `all`: each."""
    label: str = ""
    """Labels of runs, also with `*` and `?`."""
    since: str = ""
    """ISO 8601, UTC."""
    last: int | None = None
    """So many of the newest runs."""
    sessions: bool = False
    """Runs that were measured in turns count too. They differ on purpose, so they do not unless it is said."""

    @property
    def named(self) -> bool:
        """Whether somebody wants to see these, and not what is new."""
        return bool(self.ops or self.case or self.params)


def histories(
    store: Store,
    asked: HistoryQuery,
    *,
    everything: bool = False,
    margin: float = MARGIN,
    begin: Callable[[int], None] = lambda cases: None,
) -> Histories:
    """What was named, or else what changed or is out of line (with `everything`, all series); the newest change first.

    A case at a time, so that a store of any size fits into memory. `begin` is told how many there are.
    """
    _check(asked)
    runs = followed(store.runs(), asked)
    if not runs:
        raise UserError("no run is left to follow", _why_none(asked))
    cases = _cases(store, runs, asked)
    if asked.named and not cases:
        raise UserError(f"no stored case is {_described(asked)}", "`opmark show` lists those of a run")
    begin(len(cases))
    looked = short = 0
    chances: list[float] = []
    kept: list[History] = []
    for history in _each(store, runs, cases, asked, margin):
        long = len(history.points) >= FEWEST
        looked, short = looked + long, short + (not long)
        chances += [min((change.p for change in history.changes), default=1.0)] if long else []
        if asked.named or history.changes or history.warning or (everything and long):
            kept.append(history)
    if not looked + short:
        wanted = _described(asked) or "anything"
        raise UserError(f"no run has measured {wanted}", "`opmark show RUN` tells what a run has")
    judged = _judged(kept, _threshold(chances))
    unsure = sum(not change.sure for history in judged for change in history.changes)
    if not (asked.named or everything):
        judged = [one for one in judged if one.warning or any(change.sure for change in one.changes)]
    return Histories(sorted(judged, key=_newest_first, reverse=True), looked, short, unsure, BY_CHANCE * looked)


def followed(runs: Iterable[Run], asked: HistoryQuery) -> list[Run]:
    """Oldest first: stores that were merged hold them in another order."""
    kept = [
        run
        for run in runs
        if (asked.sessions or not run.session)
        and (not asked.label or fnmatchcase(run.label, asked.label))
        and run.started >= asked.since
    ]
    kept.sort(key=lambda run: (run.started, run.id))
    return kept if asked.last is None else kept[-asked.last :]


def _check(asked: HistoryQuery) -> None:
    if asked.quantity and asked.quantity != ALL and asked.quantity not in QUANTITIES:
        raise UnknownName("quantity", asked.quantity, [*QUANTITIES, ALL])
    if asked.last is not None and asked.last < 1:
        raise UserError(f"last: expected 1 or more, got {asked.last}", f"a change takes {FEWEST} runs at least")


def _why_none(asked: HistoryQuery) -> str:
    if asked.label:
        return f"none has a label like `{asked.label}`; `opmark runs` lists them"
    return f"none was started since {asked.since}" if asked.since else "`opmark run` makes one"


def _described(asked: HistoryQuery) -> str:
    parts = [", ".join(asked.ops), *(f"{name}={value}" for name, value in asked.params.items())]
    parts += [f"of the id {asked.case}" if asked.case else "", *asked.backends, *asked.phases, asked.quantity]
    return " ".join(filter(None, parts))


def _cases(store: Store, runs: Sequence[Run], asked: HistoryQuery) -> dict[str, Case]:
    if _ID(asked.case):
        ids = [asked.case]
    else:
        names = [_resolved(name) for name in asked.ops]
        ids = [
            key
            for key, op in _stored(store, runs).items()
            if key.startswith(asked.case) and (not names or any(fnmatchcase(op, name) for name in names))
        ]
    found: dict[str, Case] = {}
    for part in _chunks(ids, _AT_ONCE):
        found |= store.cases(part)
    return {key: case for key, case in found.items() if _fits(case, asked)}


def _stored(store: Store, runs: Sequence[Run]) -> dict[str, str]:
    """The operator of every case, by id. Runs of one plan have the same cases, so the newest of each knows them all.

    What measures without a plan, as `calibrate` does, is known by its label and its number of tasks besides.
    """
    by_plan: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        by_plan.setdefault((run.plan, run.label, run.tasks), []).append(run)
    found: dict[str, str] = {}
    for among in by_plan.values():
        for run in among[: -_ASKED - 1 : -1]:
            figures = store.figures(runs=[run.id])
            found |= {figure.case: figure.op for figure in figures}
            if len({(figure.series[:4], figure.process) for figure in figures}) >= run.tasks:
                break
    return found


def _chunks(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _resolved(name: str) -> str:
    """The operator that an alias is of; what is no longer installed, or a pattern, as it is."""
    try:
        return find_operator(name).name
    except UserError:
        return name


def _fits(case: Case, asked: HistoryQuery) -> bool:
    if asked.phases and case.phase not in asked.phases:
        return False
    return all(name in case.params and _one_of(case.params[name], value) for name, value in asked.params.items())


def _one_of(value: Any, wanted: Any) -> bool:
    return bool(value == wanted) or (isinstance(wanted, list | tuple) and value in wanted)


def _each(
    store: Store, runs: Sequence[Run], cases: Mapping[str, Case], asked: HistoryQuery, margin: float
) -> Iterator[History]:
    counted = {run.id: at(run) for run in runs}
    facts: dict[str, dict[str, Any]] = {}
    machines: dict[str, Machine] = {}
    noise: dict[str, NoiseFloor | None] = {}
    for key, case in cases.items():
        figures = store.figures(case=key)
        if asked.backends:
            figures = [figure for figure in figures if any(fnmatchcase(figure.backend, b) for b in asked.backends)]
        new = {figure.environment for figure in figures if figure.environment} - facts.keys()
        if new:
            facts |= {name: environment.facts for name, environment in store.environments(new).items()}
            machines |= {name: machine_of(facts[name]) for name in new & facts.keys()}
        for line in lines_of(figures, counted, machines, asked.quantity):
            environment = line.values[-1].point.environment
            if environment not in noise:
                noise[environment] = noise_of(store, facts.get(environment, {}))
            yield _history(line, case, facts, _floor(line, noise[environment]), margin)


def _floor(line: MachineSeries, noise: NoiseFloor | None) -> float:
    """As `doctor --aa` measured it; else what lies between the processes of the newest runs of this very series; 0
    where neither is known."""
    if noise and line.series.quantity in QUANTITIES and QUANTITIES[line.series.quantity].unit == "s":
        return noise.floor_for(median([value.point.value for value in line.values]))
    known = [one for value in line.values[-RUNS:] for one in deviations(value.medians)]
    return spread(known) if len(known) >= LEAST else 0.0


def _history(
    line: MachineSeries, case: Case, facts: Mapping[str, dict[str, Any]], floor: float, margin: float
) -> History:
    series = line.series
    values = [value.point.value for value in line.values]
    enough = len(values) >= FEWEST
    steady = floor / math.sqrt(median([value.point.processes for value in line.values]))  # that of a run's value
    changes = change_points(values, steady, margin) if enough else []
    begins = [0, *(change.at for change in changes)]
    level = values[begins[-1] :]
    return History(
        case=series.case,
        op=line.op,
        params=format_params(case, parameters_of(case.op)),
        phase=case.phase,
        backend=series.backend,
        implementation=series.implementation,
        threads=series.threads,
        quantity=series.quantity,
        cache=series.cache,
        chip=line.chip,
        points=tuple(value.point for value in line.values),
        level=median(level[:-1] or level),
        changes=tuple(_seen(change, since, line, facts) for change, since in zip(changes, begins, strict=False)),
        outages=tuple(line.outages),
        floor=floor,
        warning=enough and early_warning(values, steady, margin),
    )


def _seen(change: Change, since: int, line: MachineSeries, facts: Mapping[str, dict[str, Any]]) -> LevelChange:
    """`since`: where the old level began."""
    old = [value.point for value in line.values[since : change.at]]
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
        differing=_new_facts([facts.get(key, {}) for key in _environments(old)], facts.get(after.environment, {})),
    )


def _environments(points: Iterable[HistoryPoint]) -> list[str]:
    """Each once, that of the last point last."""
    return list(dict.fromkeys(point.environment for point in reversed(list(points))))[::-1]


def _new_facts(old: Sequence[dict[str, Any]], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What no run of the old level had: a host that changes every night explains nothing."""
    found = differing([(old[-1], new)])
    for facts in old[:-1]:
        found = {fact: found[fact] for fact in found if fact in differing([(facts, new)])}
    return found


def _threshold(chances: Sequence[float]) -> float:
    """Benjamini and Hochberg: the largest probability at which no more than SHARE of those below it are chance."""
    ordered = sorted(chances)
    below = [p for i, p in enumerate(ordered, 1) if p <= SHARE * i / len(ordered)]
    return below[-1] if below else 0.0


def _judged(found: Sequence[History], threshold: float) -> list[History]:
    return [
        replace(one, changes=tuple(replace(change, sure=change.p <= threshold) for change in one.changes))
        for one in found
    ]


def _newest_first(history: History) -> tuple[str, str]:
    change = history.newest_change
    return change.after.started if change else "", history.points[-1].run.started


# Stored figures -> series: the values of one case, way and quantity on one machine, run after run.

ALL = "all"
"""In place of a quantity: each of them is a series."""

Way = tuple[str, str, int]
"""Backend, implementation and threads."""
Key = tuple[str, Cache | None]
"""A quantity, and how the caches were."""
Machines = Mapping[str, Machine]
"""The machine of each environment, by its id."""
_UNKNOWN: Machine = ("unknown", "cpu")
Groups = dict[tuple[SeriesKey, Machine], dict[str, list[Figure]]]
"""By series and machine: the figures of each run."""


class RunValue(NamedTuple):
    """A run's figures of a series."""

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
    """Of one case. `runs`: those that count, by id, oldest first. Without a quantity, what each way has for its
    headline.

    What failed, and what the scheduler took the processor from, is told and is no value.
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
    return figure.backend, figure.implementation, figure.threads


def _key(figure: Figure) -> Key:
    return figure.quantity, figure.cache


def _usable(figure: Figure) -> bool:
    whole = figure.median is not None and math.isfinite(figure.median) and figure.median > 0
    return figure.status == "ok" and whole and PREEMPTED not in figure.cautions


def _headlines(figures: Iterable[Figure]) -> dict[Way, Key]:
    """What most records of a way measured first; of several, the one measured last."""
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
    if len(medians) == 1:
        return RunValue(HistoryPoint(run, medians[0], 1, figures[-1].environment), medians)
    centre, interval = math.exp(sum(map(math.log, medians)) / len(medians)), log_interval(medians)
    return RunValue(
        HistoryPoint(run, centre, len(medians), figures[-1].environment, interval.low, interval.high), medians
    )


def _outages(figures: Iterable[Figure], series: SeriesKey, runs: Mapping[str, RunAt]) -> list[Outage]:
    """Outages of the same way, each run once, in the order of the runs."""
    way = (series.backend, series.implementation, series.threads)
    found: dict[tuple[str, str], Outage] = {}
    for figure in figures:
        if _way(figure) != way:
            continue
        if figure.status in FAILED:
            found[figure.run, figure.status] = Outage(runs[figure.run], figure.status)
        elif _key(figure) == (series.quantity, series.cache):
            found[figure.run, PREEMPTED] = Outage(runs[figure.run], "preempted")
    return sorted(found.values(), key=lambda outage: (outage.run.started, outage.run.id))
