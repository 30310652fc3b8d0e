"""Stored figures -> series: the values of one case, way and quantity on one machine, run after run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from opmark.analysis.machine_key import Machine
from opmark.schema import FAILED, Run
from opmark.schema.figure import Figure, Series
from opmark.schema.history import Outage, Point, RunAt
from opmark.schema.measurement import PREEMPTED
from opmark.schema.quantity import Cache
from opmark.stats import log_interval

ALL = "all"
"""In place of a quantity: each of them is a series."""

Way = tuple[str, str, int]
"""Backend, implementation and threads."""
Key = tuple[str, Cache | None]
"""A quantity, and how the caches were."""
Machines = Mapping[str, Machine]
"""The machine of each environment, by its id."""
_UNKNOWN: Machine = ("unknown", "cpu")
Groups = dict[tuple[Series, Machine], dict[str, list[Figure]]]
"""By series and machine: the figures of each run."""


class Value(NamedTuple):
    """A run's figures of a series."""

    point: Point
    medians: tuple[float, ...]
    """Medians of its processes."""


@dataclass
class Line:
    """A series on one machine, oldest run first."""

    series: Series
    op: str
    chip: str
    values: list[Value]
    outages: list[Outage] = field(default_factory=list)


def lines_of(
    figures: Sequence[Figure], runs: Mapping[str, RunAt], machines: Machines, quantity: str = ""
) -> list[Line]:
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
        found.append(Line(series, next(iter(by_run.values()))[0].op, machine[0], values, _outages(here, series, runs)))
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


def _value(run: RunAt, figures: Sequence[Figure]) -> Value:
    medians = tuple(figure.median for figure in figures if figure.median is not None)
    if len(medians) == 1:
        return Value(Point(run, medians[0], 1, figures[-1].environment), medians)
    centre, interval = math.exp(sum(map(math.log, medians)) / len(medians)), log_interval(medians)
    return Value(Point(run, centre, len(medians), figures[-1].environment, interval.low, interval.high), medians)


def _outages(figures: Iterable[Figure], series: Series, runs: Mapping[str, RunAt]) -> list[Outage]:
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
