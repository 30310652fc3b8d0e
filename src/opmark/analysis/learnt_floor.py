"""How much identical code differs from itself on a machine, learnt from what is stored.

`doctor --aa` measures it, and what it found wins. Where nobody has asked it, every run that measured a case in several
processes has done the same experiment on the way: processes of one run ran the same code, so what is between them is
noise. Where runs have one process each, two runs after another of the same case, software and revision take their
place; they differ by the drift between sessions too, so what is learnt from them is too much rather than too little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from opmark.analysis.machine_key import machine_of
from opmark.interfaces import Store
from opmark.schema import Run
from opmark.schema.figure import Figure, Series
from opmark.schema.measurement import PREEMPTED
from opmark.schema.noise import Floor, NoiseFloor
from opmark.schema.peaks import chip
from opmark.schema.quantity import QUANTITIES
from opmark.stats import median
from opmark.store.find import noise_of

RUNS = 20
"""The newest so many runs of a machine and a backend are looked at."""
LEAST = 20
"""Deviations that a spread is taken from, at least."""
_MOST_FIGURES = 10_000
"""No more are read than it takes: a comparison waits for the answer."""
# Makes the median absolute deviation of normal values an estimate of their standard deviation.
_TO_SIGMA = 1.4826
_CLASSES = (1e-5, 1e-4, 1e-3, 1e-2)
"""Seconds at which one class of times ends and the next begins: short calls are the noisier ones."""


def noise_for(store: Store, facts: dict[str, Any]) -> NoiseFloor | None:
    """That of the backend of an environment: as `doctor --aa` measured it there, else as stored runs tell it.

    To be used in place of `store.find.noise_of`. None where neither knows. `labelings` of 0 says that it was learnt.
    """
    return noise_of(store, facts) or learnt_noise(store, facts)


def learnt_floor(store: Store, facts: dict[str, Any], seconds: float) -> float | None:
    """Relative spread between processes for calls that take so long, from whoever knows it best."""
    noise = noise_for(store, facts)
    return noise.floor_for(seconds) if noise and seconds > 0 else None


def learnt_noise(store: Store, facts: dict[str, Any]) -> NoiseFloor | None:
    """From the newest runs of this machine and backend alone; a floor a class of times that enough is known of."""
    seen = _seen(store, facts)
    values = [*_within_runs(seen), *_between_runs(seen)]
    floors = [floor for among in _by_class(values).values() if (floor := _floor(among))]
    if not floors:
        return None
    return NoiseFloor(
        chip=chip(facts),
        backend=str(facts.get("backend")),
        threads=int(facts.get("threads") or 1),
        started=seen[0].run.started,
        processes=len(values),
        labelings=0,
        floors=floors,
    )


def deviations(medians: Sequence[float]) -> list[float]:
    """How far each process is from the centre of its run, by logarithm; stretched, because so few lie nearer to their
    own centre than to the true one."""
    if len(medians) < 2:
        return []
    logs = [math.log(value) for value in medians]
    centre, stretch = sum(logs) / len(logs), math.sqrt(len(logs) / (len(logs) - 1))
    return [(value - centre) * stretch for value in logs]


def spread(found: Sequence[float]) -> float:
    """Relative, robust: of deviations around zero."""
    return _TO_SIGMA * median([abs(value) for value in found])


class _Seen(NamedTuple):
    """What a run measured here, newest run first: medians of processes."""

    run: Run
    medians: Mapping[Series, Sequence[float]]
    environments: Mapping[Series, str]


class _Deviation(NamedTuple):
    value: float
    seconds: float


def _seen(store: Store, facts: dict[str, Any]) -> list[_Seen]:
    here, backend = machine_of(facts), facts.get("backend")
    known: dict[str, bool] = {}
    found: list[_Seen] = []
    figures = 0
    for run in store.runs():
        if len(found) == RUNS or figures > _MOST_FIGURES:
            break
        every = store.figures(runs=[run.id])
        figures += len(every)
        read = [figure for figure in every if figure.backend == backend and _counts(figure)]
        new = {figure.environment for figure in read} - known.keys()
        facts_of = store.environments(new) if new else {}
        known |= {key: key in facts_of and machine_of(facts_of[key].facts) == here for key in new}
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
    medians: dict[Series, list[float]] = {}
    environments: dict[Series, str] = {}
    for figure in figures:
        assert figure.median is not None
        medians.setdefault(figure.series, []).append(figure.median)
        environments[figure.series] = figure.environment
    return _Seen(run, medians, environments)


def _within_runs(seen: Sequence[_Seen]) -> list[_Deviation]:
    return [
        _Deviation(value, median(medians))
        for one in seen
        for medians in one.medians.values()
        for value in deviations(medians)
    ]


def _between_runs(seen: Sequence[_Seen]) -> list[_Deviation]:
    """Of what has one process in each of two runs of the same software, one after the other."""
    found = []
    for later, earlier in pairwise(seen):
        if later.run.revision != earlier.run.revision or later.run.revision.endswith("+"):
            continue
        for series in later.medians.keys() & earlier.medians.keys():
            pair = [*earlier.medians[series], *later.medians[series]]
            if len(pair) == 2 and later.environments[series] == earlier.environments[series]:
                found.append(_Deviation(math.log(pair[1] / pair[0]) / math.sqrt(2), median(pair)))
    return found


def _by_class(values: Iterable[_Deviation]) -> dict[int, list[_Deviation]]:
    found: dict[int, list[_Deviation]] = {}
    for value in values:
        found.setdefault(sum(value.seconds >= end for end in _CLASSES), []).append(value)
    return dict(sorted(found.items()))


def _floor(among: Sequence[_Deviation]) -> Floor | None:
    if len(among) < LEAST:
        return None
    seconds = math.exp(sum(math.log(one.seconds) for one in among) / len(among))
    between = spread([one.value for one in among])
    return Floor(op="", params="", seconds=seconds, between=between, within=0.0)
