"""Estimate from stored runs how much identical code differs from itself on a machine.

`doctor --aa` measures this, and its result takes precedence. Without it, runs with several processes per case serve as
the experiment: processes of one run execute the same code, so their differences are noise. If runs have one process
each, consecutive runs of the same case, software and revision are used. These also differ by the drift between
sessions, so the estimate is too large rather than too small.

Two sessions differ by more than their processes show: the machine may be in another state. `estimate_sessions`
estimates by how much, from runs of the same software and revision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from opmark.analysis.environment import kind, machine_of
from opmark.schema import Run
from opmark.schema.measurement import PREEMPTED, QUANTITIES
from opmark.schema.record import COUNTED, Figure, SeriesKey
from opmark.schema.run import CHANGED
from opmark.stats.interval import geometric_mean
from opmark.stats.verdict import CLOCKED_SESSIONS, UNKNOWN_SESSIONS, Spread
from opmark.store.protocol import Store

ASSUMED_FLOOR = 0.05
"""Noise floor that is assumed if `doctor --aa` has not measured it. Over ten rounds the medians of single processes
varied by 4 % on a quiet machine (benchmarks/README.md)."""

DISTURBED_FLOOR = 0.25
"""The same for a machine that was not quiet: single processes varied by this much in a noisy hour (ibid.)."""
DISTURBED = frozenset({"loaded", "stolen", "interrupted", "clocks-moved", "drifting", "unsettled"})
"""Codes of cautions that show it."""
RUNS = 20
"""Newest runs of a machine and a backend that are read."""
LEAST = 20
"""Least number of deviations for a spread."""
OWN = 4
"""Least number of deviations for the spread of a single case."""
_MOST_FIGURES = 10_000
"""Reading stops after this many figures, because a comparison waits for the answer."""
# Quantile over the spreads of cases that is assumed for another case.
_QUANTILE = 0.95
_CLASSES = (1e-5, 1e-4, 1e-3, 1e-2)
"""Limits in seconds between classes of times: short calls are noisier."""
_Class = tuple[str, str | None, int]
"""Quantity, state of the caches and class of times."""


def floor_of_few(known: Iterable[float | None], cautions: Collection[str]) -> float:
    """Return the noise floor that takes the place of the spread of few processes: the largest that is known, or one
    that is assumed. `cautions` are the codes of all that is doubtful about these processes."""
    largest = max(filter(None, known), default=ASSUMED_FLOOR)
    return max(largest, DISTURBED_FLOOR) if DISTURBED.intersection(cautions) else largest


class NoiseEstimate(NamedTuple):
    """Replaces the spread of a few processes, so it has to be too large rather than too small. Processes have outliers
    and states, so it is made of squares and not of medians."""

    own: Mapping[SeriesKey, float]
    """Spread of each series with enough deviations."""
    classes: Mapping[_Class, float]
    """By quantity and class of times, the spread that nearly all cases stay below."""

    def floor_for(self, series: SeriesKey, seconds: float) -> float:
        """Return the spread; 0 if nothing is known. The spread of the series itself counts only if it exceeds that of
        the class, because a short history may have missed a slower state."""
        return max(self.own.get(series, 0.0), self.classes.get(_class(series, seconds), 0.0))


def estimate_noise(
    store: Store, facts: dict[str, Any], figures_of: Callable[[str], list[Figure]] | None = None
) -> NoiseEstimate | None:
    """Estimate the noise from the newest runs of this machine and backend; None if too little is stored. `figures_of`
    returns the figures of a run, for callers that have read some already."""
    seen = _read_runs(store, facts, figures_of or (lambda run_id: store.figures(runs=[run_id])))
    by_series: dict[SeriesKey, list[_Deviation]] = {}
    for series, deviation in (*_within_runs(seen), *_between_runs(seen)):
        by_series.setdefault(series, []).append(deviation)
    own = {series: spread([one.value for one in among]) for series, among in by_series.items() if len(among) >= OWN}
    classes = _by_class(by_series, LEAST)
    return NoiseEstimate(own, classes) if classes else None


class SessionEstimate(NamedTuple):
    """How far sessions of the same code spread on a machine."""

    own: Mapping[SeriesKey, Spread]
    """Spread of the runs of each series; its degrees of freedom are one less than there are runs of the same code."""
    classes: Mapping[_Class, float]
    """By quantity and class of times, the spread that nearly all cases stay below."""
    runs: int
    """Number of runs that were of use."""

    def spread_for(self, series: SeriesKey, seconds: float, *, clocked: bool) -> Spread:
        """Return the spread of a case, of which a part is assumed: the less, the more sessions are known. A case
        without a past of its own counts as known from the fewest sessions of any other."""
        assumed = CLOCKED_SESSIONS if clocked else UNKNOWN_SESSIONS
        which = _class(series, seconds)
        own = self.own.get(series)
        if own is None and which not in self.classes:
            return assumed
        known = own.freedom if own else min(one.freedom for one in self.own.values())
        seen = max(self.classes.get(which, 0.0), own.deviation if own else 0.0)
        freedom = assumed.freedom + known
        return Spread(math.sqrt((assumed.freedom * assumed.deviation**2 + known * seen**2) / freedom), freedom)


NO_SESSIONS = SessionEstimate({}, {}, 0)
"""Nothing is known of the machine."""


def estimate_sessions(
    store: Store, facts: dict[str, Any], leave_out: Collection[str], figures_of: Callable[[str], list[Figure]]
) -> SessionEstimate:
    """Estimate how far sessions spread from the newest runs of this machine and backend, without those to leave out:
    the runs that are compared, whose difference may be real. Runs that were measured in turns differ on purpose."""
    seen = _read_runs(store, facts, figures_of, lambda run: run.id not in leave_out and not run.session)
    centres: dict[tuple[SeriesKey, str, str], list[float]] = {}
    used: dict[tuple[SeriesKey, str, str], list[str]] = {}
    for one in seen:
        if one.run.revision.endswith(CHANGED):
            continue
        for series, medians in one.medians.items():
            code = (series, one.run.revision, one.software[series])
            centres.setdefault(code, []).append(geometric_mean(medians))
            used.setdefault(code, []).append(one.run.id)
    by_series: dict[SeriesKey, list[_Deviation]] = {}
    freedom: dict[SeriesKey, int] = {}
    runs: set[str] = set()
    for (series, *_), values in centres.items():
        if len(values) > 1:
            by_series.setdefault(series, []).extend(_Deviation(one, median(values)) for one in deviations(values))
            freedom[series] = freedom.get(series, 0) + len(values) - 1
    for ids in used.values():
        runs.update(ids if len(ids) > 1 else [])
    own = {series: Spread(spread([one.value for one in among]), freedom[series]) for series, among in by_series.items()}
    return SessionEstimate(own, _by_class(by_series, 1), len(runs))


def deviations(medians: Sequence[float]) -> list[float]:
    """Return the deviation of each logarithm from their mean, scaled up because few values lie closer to their own mean
    than to the true one."""
    if len(medians) < 2:
        return []
    logs = [math.log(value) for value in medians]
    centre, stretch = sum(logs) / len(logs), math.sqrt(len(logs) / (len(logs) - 1))
    return [(value - centre) * stretch for value in logs]


def spread(found: Sequence[float]) -> float:
    """Return the root mean square of deviations around zero."""
    return math.sqrt(sum(value**2 for value in found) / len(found))


class _RunMedians(NamedTuple):
    """Medians of the processes of a run on this machine."""

    run: Run
    medians: Mapping[SeriesKey, Sequence[float]]
    environments: Mapping[SeriesKey, str]
    software: Mapping[SeriesKey, str]
    """Versions and settings, as text."""


class _Deviation(NamedTuple):
    value: float
    seconds: float


def _read_runs(
    store: Store,
    facts: dict[str, Any],
    figures_of: Callable[[str], list[Figure]],
    counts: Callable[[Run], bool] = lambda run: True,
) -> list[_RunMedians]:
    here, backend = machine_of(facts), facts.get("backend")
    known: dict[str, str | None] = {}
    """Software by environment id; None: another machine."""
    found: list[_RunMedians] = []
    figures = 0
    for run in filter(counts, store.runs()):
        if len(found) == RUNS or figures > _MOST_FIGURES:
            break
        every = figures_of(run.id)
        figures += len(every)
        read = [figure for figure in every if figure.backend == backend and _is_usable(figure)]
        new = {figure.environment for figure in read} - known.keys()
        told = store.environments(new) if new else {}
        for key in new:
            ours = key in told and machine_of(told[key].facts) == here
            known[key] = _software(told[key].facts) if ours else None
        medians: dict[SeriesKey, list[float]] = {}
        environments: dict[SeriesKey, str] = {}
        software: dict[SeriesKey, str] = {}
        for figure in read:
            of = known[figure.environment]
            if of is not None:
                assert figure.median is not None
                medians.setdefault(figure.series, []).append(figure.median)
                environments[figure.series], software[figure.series] = figure.environment, of
        if medians:
            found.append(_RunMedians(run, medians, environments, software))
    return found


def _software(facts: Mapping[str, Any]) -> str:
    return repr(sorted((fact, repr(value)) for fact, value in facts.items() if kind(fact) == "software"))


def _is_usable(figure: Figure) -> bool:
    """Return whether a figure is a valid time; a preempted one is not noise of this machine."""
    time = figure.quantity in QUANTITIES and QUANTITIES[figure.quantity].unit == "s"
    measured = figure.status in COUNTED and figure.median is not None and figure.median > 0
    return time and measured and PREEMPTED not in figure.cautions


def _within_runs(seen: Sequence[_RunMedians]) -> list[tuple[SeriesKey, _Deviation]]:
    return [
        (series, _Deviation(value, median(medians)))
        for one in seen
        for series, medians in one.medians.items()
        for value in deviations(medians)
    ]


def _between_runs(seen: Sequence[_RunMedians]) -> list[tuple[SeriesKey, _Deviation]]:
    """Return the deviations between consecutive runs of the same software that have one process each."""
    found = []
    for later, earlier in pairwise(seen):
        if later.run.revision != earlier.run.revision or later.run.revision.endswith(CHANGED):
            continue
        for series in later.medians.keys() & earlier.medians.keys():
            pair = [*earlier.medians[series], *later.medians[series]]
            if len(pair) == 2 and later.environments[series] == earlier.environments[series]:
                found.append((series, _Deviation(math.log(pair[1] / pair[0]) / math.sqrt(2), median(pair))))
    return found


def _class(series: SeriesKey, seconds: float) -> _Class:
    return series.quantity, series.cache, sum(seconds >= end for end in _CLASSES)


def _by_class(cases: Mapping[SeriesKey, Sequence[_Deviation]], least: int) -> dict[_Class, float]:
    """Return the spread of each class with at least that many deviations."""
    found: dict[_Class, list[Sequence[_Deviation]]] = {}
    for series, among in cases.items():
        found.setdefault(_class(series, median([one.seconds for one in among])), []).append(among)
    return {
        which: _upper_spread([spread([one.value for one in among]) for among in known])
        for which, known in found.items()
        if sum(map(len, known)) >= least
    }


def _upper_spread(spreads: Sequence[float]) -> float:
    """Return the spread that at most one case of twenty exceeds."""
    return sorted(spreads)[math.ceil(_QUANTILE * len(spreads)) - 1]
