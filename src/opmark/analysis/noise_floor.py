"""Estimate from stored runs how much identical code differs from itself on a machine.

`doctor --aa` measures this, and its result takes precedence. Without it, runs with several processes per case serve as
the experiment: processes of one run execute the same code, so their differences are noise. If runs have one process
each, consecutive runs of the same case, software and revision are used. These also differ by the drift between
sessions, so the estimate is too large rather than too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from opmark.analysis.environment import machine_of
from opmark.schema import Run
from opmark.schema.measurement import PREEMPTED, QUANTITIES
from opmark.schema.record import COUNTED, Figure, SeriesKey
from opmark.schema.run import CHANGED
from opmark.store.protocol import Store

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


class NoiseEstimate(NamedTuple):
    """Replaces the spread of a few processes, so it has to be too large rather than too small. Processes have outliers
    and states, so it is made of squares and not of medians."""

    own: Mapping[SeriesKey, float]
    """Spread of each series with enough deviations."""
    classes: Mapping[int, float]
    """By class of times, the spread that nearly all cases stay below."""

    def floor_for(self, series: SeriesKey, seconds: float) -> float:
        """Return the spread; 0 if nothing is known. The spread of the series itself counts only if it exceeds that of
        the class, because a short history may have missed a slower state."""
        return max(self.own.get(series, 0.0), self.classes.get(_class(seconds), 0.0))


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
    classes = _by_class(by_series.values())
    return NoiseEstimate(own, classes) if classes else None


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


class _Deviation(NamedTuple):
    value: float
    seconds: float


def _read_runs(store: Store, facts: dict[str, Any], figures_of: Callable[[str], list[Figure]]) -> list[_RunMedians]:
    here, backend = machine_of(facts), facts.get("backend")
    known: dict[str, bool] = {}
    found: list[_RunMedians] = []
    figures = 0
    for run in store.runs():
        if len(found) == RUNS or figures > _MOST_FIGURES:
            break
        every = figures_of(run.id)
        figures += len(every)
        read = [figure for figure in every if figure.backend == backend and _is_usable(figure)]
        new = {figure.environment for figure in read} - known.keys()
        told = store.environments(new) if new else {}
        known |= {key: key in told and machine_of(told[key].facts) == here for key in new}
        ours = [figure for figure in read if known[figure.environment]]
        if ours:
            found.append(_gather(run, ours))
    return found


def _is_usable(figure: Figure) -> bool:
    """Return whether a figure is a valid time; a preempted one is not noise of this machine."""
    time = figure.quantity in QUANTITIES and QUANTITIES[figure.quantity].unit == "s"
    measured = figure.status in COUNTED and figure.median is not None and figure.median > 0
    return time and measured and PREEMPTED not in figure.cautions


def _gather(run: Run, figures: Iterable[Figure]) -> _RunMedians:
    medians: dict[SeriesKey, list[float]] = {}
    environments: dict[SeriesKey, str] = {}
    for figure in figures:
        assert figure.median is not None
        medians.setdefault(figure.series, []).append(figure.median)
        environments[figure.series] = figure.environment
    return _RunMedians(run, medians, environments)


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


def _class(seconds: float) -> int:
    return sum(seconds >= end for end in _CLASSES)


def _by_class(cases: Iterable[Sequence[_Deviation]]) -> dict[int, float]:
    found: dict[int, list[Sequence[_Deviation]]] = {}
    for among in cases:
        found.setdefault(_class(median([one.seconds for one in among])), []).append(among)
    return {
        which: _upper_spread([spread([one.value for one in among]) for among in known])
        for which, known in found.items()
        if sum(map(len, known)) >= LEAST
    }


def _upper_spread(spreads: Sequence[float]) -> float:
    """Return the spread that at most one case of twenty exceeds."""
    return sorted(spreads)[math.ceil(_QUANTILE * len(spreads)) - 1]
