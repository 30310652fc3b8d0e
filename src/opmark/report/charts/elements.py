"""What figures of all cases share: where something ran, what is left out and why, names of ways, free addresses."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard, TypeVar

from msgspec import Struct, json
from msgspec.structs import replace

from opmark.analysis.rows import MachineFacts, Row, RunView, Timing
from opmark.plugin.registry import way_of
from opmark.schema.chart import Chart, ChartSeries, Mark
from opmark.schema.machine import findings_key
from opmark.schema.measurement import PREEMPTED
from opmark.schema.tensor import DTYPES
from opmark.units import count_noun

COMMUNICATION = "of communication: the figures of bus bandwidth tell of it"
NO_TIME = "whose headline is no time"
NO_MEDIAN = "without a median above 0"
SCHEDULER = "that the scheduler interrupted: the number is its own"
LATENCY = "latency"
LINEAR = 20.0
"""Up to this factor between bars the shortest can still be seen on a linear axis."""
ONE_PROCESS = "intervals are of one process, and another may lie outside them: `--processes 5` tells"
LAUNCHED = "latency on a device has the launch in it: it is no measure of the kernels alone"

_UNKNOWN = MachineFacts()


class ChartHardware(Struct, frozen=True):
    """Hardware with its limits: environments that share both are one."""

    key: str
    name: str
    """The chip; of a processor with the number of threads."""
    machine: MachineFacts
    device: bool = False
    """Whether calls are launched there from a processor beside it."""


NOWHERE = ChartHardware("", "unknown hardware", _UNKNOWN)
"""The hardware of what never ran, or ran nobody knows where."""


def places(run_view: RunView) -> dict[str, ChartHardware]:
    """By the id of an environment. A processor with other threads has other limits: it is another place."""
    found = {}
    for environment, facts in run_view.environments.items():
        name = findings_key(facts)
        own = run_view.machines.get(environment, _UNKNOWN)._replace(noise=None)  # that is of a backend
        found[environment] = ChartHardware(f"{name} {json.encode(own).decode()}", name, own, _is_device(facts))
    return found


def _is_device(facts: dict[str, Any]) -> bool:
    return bool(facts.get("gpu") or facts.get("chip")) or (facts.get("device") or "cpu") != "cpu"


class Left:
    """What a figure leaves out: how many, by reason."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def out(self, reason: str, number: int = 1) -> None:
        self._counts[reason] += number

    def notes(self) -> tuple[str, ...]:
        """One line, if there is anything."""
        told = [f"{count_noun(number, 'case')} {reason}" for reason, number in self._counts.items()]
        return (f"left out: {'; '.join(told)}",) if told else ()


def why_out(row: Row) -> str:
    """Why there is no time of its work to draw, or nothing."""
    if row.status != "ok":
        return f"that ended as `{row.status}`"
    if row.traffic is not None:
        return COMMUNICATION
    first = row.headline
    if first is not None and first.unit != "s":
        return NO_TIME
    if first is not None and PREEMPTED in first.cautions:
        return SCHEDULER
    return "" if usable(first) else NO_MEDIAN


def timed(timing: Timing | None) -> bool:
    """Whether it is a time that says something of the operator, and has a place on a logarithmic axis."""
    return usable(timing) and timing.unit == "s"


def ends(timing: Timing) -> tuple[float | None, float | None]:
    """Ends of its interval, where both can be drawn."""
    low, high = end(timing.low), end(timing.high)
    return (low, high) if low is not None and high is not None else (None, None)


def alone(timings: Iterable[Timing | None]) -> tuple[str, ...]:
    """A note where an interval knows of one process only."""
    found = any(t is not None and t.processes == 1 and t.low is not None for t in timings)
    return (ONE_PROCESS,) if found else ()


class Ways:
    """Backend and implementation as series are called; asked for thousands of times."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def name(self, row: Row) -> str:
        key = (row.backend, row.implementation)
        if key not in self._known:
            self._known[key] = row.backend + way_of(*key)
        return self._known[key]


def rank(dtype: str) -> tuple[int, str]:
    """Element types in their usual order, those that nobody knows last."""
    return (list(DTYPES).index(dtype) if dtype in DTYPES else len(DTYPES), dtype)


def phased(row: Row) -> str:
    """The operator, and the phase where it is not the usual one."""
    return row.op if row.phase == "forward" else f"{row.op} {row.phase_text}"


def doubts(timing: Timing) -> str:
    return ", ".join(timing.cautions)


def wide(values: Sequence[float], most: float) -> bool:
    """Whether they are so far apart that only a logarithmic axis shows the smallest."""
    known = [value for value in values if positive(value)]
    return bool(known) and max(known) > most * min(known)


def unique(charts: Iterable[Chart]) -> list[Chart]:
    """The second of an address gets a number: names that differ may have the same letters."""
    taken: set[str] = set()
    found = []
    for chart in charts:
        free, number = chart.id, 1
        while free in taken:
            number += 1
            free = f"{chart.id}-{number}"
        taken.add(free)
        found.append(chart if free == chart.id else replace(chart, id=free))
    return found


# Fewer dots, where too many lie on each other.

_STEPS = (64, 32, 16, 8, 4, 2, 1)
"""Places a decade that dots are told apart by, ever fewer: a hundredth of a decade is the width of a line."""

_Any = TypeVar("_Any")
Spot = tuple[Hashable, float, float]
"""What a dot is one of, and its two values, both above 0."""


class Dot(NamedTuple):
    """A dot of a roofline."""

    row: Row
    timing: Timing
    intensity: float
    rate: float

    @property
    def spot(self) -> Spot:
        row, timing = self.row, self.timing
        kind = (row.backend, row.implementation, timing.quantity, timing.cache, row.dtype)
        return kind, self.intensity, self.rate


def thinned(dots: Sequence[_Any], most: int, spot: Callable[[_Any], Spot]) -> list[_Any]:
    """At most so many: of those of one kind that lie close together the first is kept."""
    kept = list(dots)
    for steps in _STEPS:
        if len(kept) <= most:
            return kept
        kept = list({_cell(spot(dot), steps): dot for dot in reversed(kept)}.values())[::-1]
    return [kept[i * len(kept) // most] for i in range(most)] if len(kept) > most else kept


def _cell(spot: Spot, steps: int) -> tuple[Hashable, int, int]:
    kind, *values = spot
    x, y = (math.floor(steps * math.log10(value)) for value in values)
    return kind, x, y


# What several figures need: which numbers can be drawn, who is held against whom, how things are called.

MOST_DOTS = 600
"""In a figure with a dot a case, so that a page has room for other figures."""
_FEW = 5
"""Things that a note names; the others are counted."""


def positive(value: float | None) -> TypeGuard[float]:
    """Whether it has a place on a logarithmic axis."""
    return value is not None and math.isfinite(value) and value > 0


def end(value: float | None) -> float | None:
    """The end of an interval, where it can be drawn."""
    return value if positive(value) else None


def usable(timing: Timing | None) -> TypeGuard[Timing]:
    """Whether there is one whose number says something of the operator."""
    return timing is not None and timing.usable


def measured(row: Row) -> Timing | None:
    """The headline of what went well, if it is usable."""
    return row.headline if row.status == "ok" and usable(row.headline) else None


def spoilt(rows: Iterable[Row]) -> list[str]:
    """A note on numbers that were taken and cannot be drawn; what failed is told elsewhere."""
    count = sum(row.status == "ok" and bool(row.timings) and measured(row) is None for row in rows)
    return [f"{count_noun(count, 'case')} left out: no usable number (preempted, 0 or none)"] if count else []


def called(row: Row) -> str:
    return f"{row.name} on {row.where}"


def address(*texts: str) -> str:
    """Fit for the id of a chart."""
    return "-".join(filter(None, (re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-") for text in texts)))


def listed(names: Sequence[str]) -> str:
    """The first few of them; how many more."""
    more = len(names) - _FEW
    return "; ".join([*names[:_FEW], *([f"and {more} more"] if more > 0 else [])])


class Factor(NamedTuple):
    value: float
    low: float | None
    high: float | None


def faster(base: Timing | None, other: Timing | None) -> Factor | None:
    """How many times as fast the other is; its interval from both of theirs. None where they are not comparable."""
    if not (usable(base) and usable(other)) or (base.quantity, base.cache) != (other.quantity, other.cache):
        return None
    if base is other:
        return Factor(1.0, 1.0, 1.0)
    slow, quick = end(base.low), end(other.high)
    low = slow / quick if slow and quick else None
    slow, quick = end(base.high), end(other.low)
    return Factor((base.median or 0) / (other.median or 1), low, slow / quick if slow and quick else None)


def beside(rows: Iterable[Row], same: Callable[[Row], Hashable], apart: Callable[[Row], Hashable]) -> list[list[Row]]:
    """Rows that are the `same` but for what sets them `apart`, two or more each. What was measured several times, with
    other seeds perhaps, is held against its own kind: the second against the second."""
    times: Counter[Hashable] = Counter()
    found: dict[Hashable, list[Row]] = {}
    for row in rows:
        key, own = same(row), apart(row)
        found.setdefault((key, times[key, own]), []).append(row)
        times[key, own] += 1
    return [group for group in found.values() if len(group) > 1]


def few(pairs: Sequence[tuple[Row, Mark]]) -> tuple[list[tuple[Row, Mark]], list[str]]:
    """As many dots as one figure may have, and a note on the others."""
    kept = thinned(pairs, MOST_DOTS, lambda pair: (pair[0].backend, pair[1].x, pair[1].y))
    hidden = count_noun(len(pairs) - len(kept), "dot")
    return kept, [f"left out: {hidden} near others of their backend"] if len(kept) < len(pairs) else []


def by_backend(pairs: Iterable[tuple[Row, Mark]]) -> tuple[ChartSeries, ...]:
    """Dots, a series a backend."""
    found: dict[str, list[Mark]] = {}
    for row, mark in pairs:
        found.setdefault(row.backend, []).append(mark)
    return tuple(ChartSeries(name, tuple(marks)) for name, marks in found.items())


def diagonal(series: Sequence[ChartSeries], name: str) -> ChartSeries:
    """The line on which both values are the same, as long as the dots reach."""
    values = [value for one in series for mark in one.marks for value in (mark.x, mark.y)]
    ends = tuple(Mark(value, value) for value in (min(values), max(values)))
    return ChartSeries(name, ends, "line", "guide")
