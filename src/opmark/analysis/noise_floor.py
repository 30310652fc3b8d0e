"""How much identical code differs from itself on a machine, learnt from what is stored.

`doctor --aa` measures it, and what it found wins. Where nobody has asked it, every run that measured a case in several
processes has done the same experiment on the way: processes of one run ran the same code, so what is between them is
noise. Where runs have one process each, two runs after another of the same case, software and revision take their
place; they differ by the drift between sessions too, so what is learnt from them is too much rather than too little.
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
from opmark.schema.record import Figure, SeriesKey
from opmark.schema.run import CHANGED
from opmark.store.protocol import Store

RUNS = 20
"""The newest so many runs of a machine and a backend are looked at."""
LEAST = 20
"""Deviations that a spread is taken from, at least."""
OWN = 4
"""Deviations of a case that tell of its own spread, at least."""
_MOST_FIGURES = 10_000
"""No more are read than it takes: a comparison waits for the answer."""
# Of the spreads of cases: which of them another case has is not known.
_QUANTILE = 0.95
_CLASSES = (1e-5, 1e-4, 1e-3, 1e-2)
"""Seconds at which one class of times ends and the next begins: short calls are the noisier ones."""


class NoiseEstimate(NamedTuple):
    """What stands for the spread of a few processes: it has to be too much rather than too little. Processes have
    outliers and states, so squares are counted, and not the middle of what was seen."""

    own: Mapping[SeriesKey, float]
    """Number of series with enough of a past."""
    classes: Mapping[int, float]
    """By class of times: what nearly all cases stay below."""

    def floor_for(self, series: SeriesKey, seconds: float) -> float:
        """0 where nothing is known. A short past of its own may have missed its other state, so that it counts only
        where it is more than that of the others."""
        return max(self.own.get(series, 0.0), self.classes.get(_class(seconds), 0.0))


def estimate_noise(
    store: Store, facts: dict[str, Any], figures_of: Callable[[str], list[Figure]] | None = None
) -> NoiseEstimate | None:
    """From the newest runs of this machine and backend alone; None where too little is stored. `figures_of`: those of
    a run, for who has read some of them already."""
    seen = _seen(store, facts, figures_of or (lambda run_id: store.figures(runs=[run_id])))
    by_series: dict[SeriesKey, list[_Deviation]] = {}
    for series, deviation in (*_within_runs(seen), *_between_runs(seen)):
        by_series.setdefault(series, []).append(deviation)
    own = {series: spread([one.value for one in among]) for series, among in by_series.items() if len(among) >= OWN}
    classes = _by_class(by_series.values())
    return NoiseEstimate(own, classes) if classes else None


def deviations(medians: Sequence[float]) -> list[float]:
    """How far each process is from the centre of its run, by logarithm; stretched, because so few lie nearer to their
    own centre than to the true one."""
    if len(medians) < 2:
        return []
    logs = [math.log(value) for value in medians]
    centre, stretch = sum(logs) / len(logs), math.sqrt(len(logs) / (len(logs) - 1))
    return [(value - centre) * stretch for value in logs]


def spread(found: Sequence[float]) -> float:
    """Relative: of deviations around zero."""
    return math.sqrt(sum(value**2 for value in found) / len(found))


class _Seen(NamedTuple):
    """What a run measured here, newest run first: medians of processes."""

    run: Run
    medians: Mapping[SeriesKey, Sequence[float]]
    environments: Mapping[SeriesKey, str]


class _Deviation(NamedTuple):
    value: float
    seconds: float


def _seen(store: Store, facts: dict[str, Any], figures_of: Callable[[str], list[Figure]]) -> list[_Seen]:
    here, backend = machine_of(facts), facts.get("backend")
    known: dict[str, bool] = {}
    found: list[_Seen] = []
    figures = 0
    for run in store.runs():
        if len(found) == RUNS or figures > _MOST_FIGURES:
            break
        every = figures_of(run.id)
        figures += len(every)
        read = [figure for figure in every if figure.backend == backend and _counts(figure)]
        new = {figure.environment for figure in read} - known.keys()
        told = store.environments(new) if new else {}
        known |= {key: key in told and machine_of(told[key].facts) == here for key in new}
        ours = [figure for figure in read if known[figure.environment]]
        if ours:
            found.append(_gathered(run, ours))
    return found


def _counts(figure: Figure) -> bool:
    """A time that is the operator's: what the scheduler interrupted is no noise of this machine."""
    time = figure.quantity in QUANTITIES and QUANTITIES[figure.quantity].unit == "s"
    measured = figure.status == "ok" and figure.median is not None and figure.median > 0
    return time and measured and PREEMPTED not in figure.cautions


def _gathered(run: Run, figures: Iterable[Figure]) -> _Seen:
    medians: dict[SeriesKey, list[float]] = {}
    environments: dict[SeriesKey, str] = {}
    for figure in figures:
        assert figure.median is not None
        medians.setdefault(figure.series, []).append(figure.median)
        environments[figure.series] = figure.environment
    return _Seen(run, medians, environments)


def _within_runs(seen: Sequence[_Seen]) -> list[tuple[SeriesKey, _Deviation]]:
    return [
        (series, _Deviation(value, median(medians)))
        for one in seen
        for series, medians in one.medians.items()
        for value in deviations(medians)
    ]


def _between_runs(seen: Sequence[_Seen]) -> list[tuple[SeriesKey, _Deviation]]:
    """Of what has one process in each of two runs of the same software, one after the other."""
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
        which: _most([spread([one.value for one in among]) for among in known])
        for which, known in found.items()
        if sum(map(len, known)) >= LEAST
    }


def _most(spreads: Sequence[float]) -> float:
    """What at most one of twenty is above."""
    return sorted(spreads)[math.ceil(_QUANTILE * len(spreads)) - 1]
