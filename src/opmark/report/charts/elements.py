"""Shared parts of charts: hardware, usable numbers, reasons for leaving rows out, names, and series of dots."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeGuard, TypeVar

from msgspec import Struct, json
from msgspec.structs import replace

from opmark.analysis.rows import MachineFacts, Row, RunView, Timing
from opmark.plugin.registry import way_of
from opmark.schema.chart import Chart, ChartSeries, Mark
from opmark.schema.machine import findings_key
from opmark.schema.measurement import NAMED_BY_TIMER, PREEMPTED
from opmark.schema.record import COUNTED, MEASURED
from opmark.schema.tensor import DTYPES
from opmark.units import count_noun

COMMUNICATION = "of communication: the figures of bus bandwidth tell of it"
UNDER_LOAD = "under load or in company: other figures tell of it"
NO_TIME = "whose headline is no time"
NO_MEDIAN = "without a median above 0"
SCHEDULER = "that the scheduler interrupted: the number is its own"
LATENCY = "latency"
LINEAR = 20.0
"""Factor between bars up to which the shortest is visible on a linear axis."""
ONE_PROCESS = "intervals are of one process, and another may lie outside them: `--processes 5` tells"
LAUNCHED = "latency on a device has the launch in it: it is no measure of the kernels alone"

_UNKNOWN = MachineFacts()


class ChartHardware(Struct, frozen=True):
    """Hardware with its limits; environments with the same ones share it."""

    key: str
    name: str
    """Name of the chip; of a processor together with the number of threads."""
    machine: MachineFacts
    device: bool = False
    """Whether it is a device on which a host launches calls."""


NOWHERE = ChartHardware("", "unknown hardware", _UNKNOWN)
"""Hardware of rows that did not run, or whose environment is unknown."""


def hardware_by_environment(run_view: RunView) -> dict[str, ChartHardware]:
    """Return the hardware of each environment by its id. A processor with another number of threads has other
    limits, and is another one."""
    found = {}
    for environment, facts in run_view.environments.items():
        name = findings_key(facts)
        own = run_view.machines.get(environment, _UNKNOWN)._replace(noise=None)  # noise belongs to a backend
        device = bool(facts.get("gpu") or facts.get("chip")) or (facts.get("device") or "cpu") != "cpu"
        found[environment] = ChartHardware(f"{name} {json.encode(own).decode()}", name, own, device)
    return found


class LeftOutCounter:
    """Counts the rows that a figure leaves out, by reason."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, reason: str, number: int = 1) -> None:
        self._counts[reason] += number

    def notes(self) -> tuple[str, ...]:
        """Return one line, or nothing if nothing is left out."""
        reasons = [f"{count_noun(number, 'case')} {reason}" for reason, number in self._counts.items()]
        return (f"left out: {'; '.join(reasons)}",) if reasons else ()


def why_left_out(row: Row) -> str:
    """Return the reason why a row has no time to draw; empty if it has one."""
    if row.status not in COUNTED:
        return f"that ended as `{row.status}`"
    if row.traffic is not None:
        return COMMUNICATION
    if not row.is_plain:
        return UNDER_LOAD
    first = row.headline
    if first is not None and first.unit != "s":
        return NO_TIME
    if first is not None and PREEMPTED in first.cautions:
        return SCHEDULER
    return "" if is_usable(first) else NO_MEDIAN


def is_usable_time(timing: Timing | None) -> bool:
    """Whether it is a time of the operator with a place on a logarithmic axis; that of a request depends on the
    load, and that in company on the others."""
    return is_usable(timing) and timing.unit == "s" and timing.quantity not in NAMED_BY_TIMER


def ends(timing: Timing) -> tuple[float | None, float | None]:
    """Return the ends of the interval, or None for both unless both can be drawn."""
    low, high = end(timing.low), end(timing.high)
    return (low, high) if low is not None and high is not None else (None, None)


def note_one_process(timings: Iterable[Timing | None]) -> tuple[str, ...]:
    """Return a note if an interval is of one process only."""
    found = any(t is not None and t.processes == 1 and t.low is not None for t in timings)
    return (ONE_PROCESS,) if found else ()


class WayNames:
    """Names of series by backend and implementation, cached because they are needed for thousands of rows."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def name(self, row: Row) -> str:
        key = (row.backend, row.implementation)
        if key not in self._known:
            self._known[key] = row.backend + way_of(*key)
        return self._known[key]


def dtype_order(dtype: str) -> tuple[int, str]:
    """Return the sort key of an element type: the usual order, unknown ones last."""
    return (list(DTYPES).index(dtype) if dtype in DTYPES else len(DTYPES), dtype)


def operator_name(row: Row) -> str:
    """Return the operator, with its phase unless that is forward."""
    return row.op if row.phase == "forward" else f"{row.op} {row.phase_text}"


def doubts(timing: Timing) -> str:
    return ", ".join(timing.cautions)


def needs_log_axis(values: Sequence[float], most: float) -> bool:
    """Whether the smallest value is visible only on a logarithmic axis."""
    known = [value for value in values if positive(value)]
    return bool(known) and max(known) > most * min(known)


def unique(charts: Iterable[Chart]) -> list[Chart]:
    """Make the ids of charts unique by numbers, because different names may become the same id."""
    used: set[str] = set()
    found = []
    for chart in charts:
        free, number = chart.id, 1
        while free in used:
            number += 1
            free = f"{chart.id}-{number}"
        used.add(free)
        found.append(chart if free == chart.id else replace(chart, id=free))
    return found


# Fewer dots where many lie on each other.

_STEPS = (64, 32, 16, 8, 4, 2, 1)
"""Grids by which near dots are found, in cells per decade, ever coarser; a hundredth of a decade is the width of a
line."""

_Any = TypeVar("_Any")
Spot = tuple[Hashable, float, float]
"""Kind of a dot, and its two values, both above 0."""


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


def thin_out(dots: Sequence[_Any], most: int, spot: Callable[[_Any], Spot]) -> list[_Any]:
    """Return at most `most` dots: of dots of one kind that lie close together, the first."""
    remaining = list(dots)
    for steps in _STEPS:
        if len(remaining) <= most:
            return remaining
        near: dict[tuple[Hashable, int, int], _Any] = {}
        for dot in reversed(remaining):
            kind, x, y = spot(dot)
            near[kind, math.floor(steps * math.log10(x)), math.floor(steps * math.log10(y))] = dot
        remaining = list(near.values())[::-1]
    return [remaining[i * len(remaining) // most] for i in range(most)] if len(remaining) > most else remaining


# Usable numbers, names, and rows that are compared.

MOST_DOTS = 600
"""Number of dots in a figure with one dot for each case, so that a page has room for other figures."""
_FEW = 5
"""Number of names in a note; the others are counted."""


def positive(value: float | None) -> TypeGuard[float]:
    """Whether a value has a place on a logarithmic axis."""
    return value is not None and math.isfinite(value) and value > 0


def end(value: float | None) -> float | None:
    """Return the end of an interval, or None if it cannot be drawn."""
    return value if positive(value) else None


def is_usable(timing: Timing | None) -> TypeGuard[Timing]:
    """Whether there is a timing, and its number is about the operator."""
    return timing is not None and timing.usable


def usable_headline(row: Row) -> Timing | None:
    """Return the headline of a row that succeeded, if it is usable and no number under load."""
    return row.headline if row.status in COUNTED and row.is_plain and is_usable(row.headline) else None


def note_unusable(rows: Iterable[Row]) -> list[str]:
    """Return a note on rows with unusable numbers; failures are listed elsewhere."""
    alone = [row for row in rows if row.is_plain and row.status in MEASURED and row.timings]
    count = sum(usable_headline(row) is None for row in alone)
    return [f"{count_noun(count, 'case')} left out: no usable number (preempted, 0 or none)"] if count else []


def row_label(row: Row) -> str:
    return f"{row.name} on {row.where}"


def address(*texts: str) -> str:
    """Return texts as the id of a chart."""
    return "-".join(filter(None, (re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-") for text in texts)))


def name_few(names: Sequence[str]) -> str:
    """Return the first few names, and the number of the others."""
    more = len(names) - _FEW
    return "; ".join([*names[:_FEW], *([f"and {more} more"] if more > 0 else [])])


class Factor(NamedTuple):
    value: float
    low: float | None
    high: float | None


def speedup_factor(base: Timing | None, other: Timing | None) -> Factor | None:
    """Return how many times as fast `other` is, with an interval from both of theirs; None if they are not
    comparable."""
    if not (is_usable(base) and is_usable(other)) or (base.quantity, base.cache) != (other.quantity, other.cache):
        return None
    if base is other:
        return Factor(1.0, 1.0, 1.0)
    slow, quick = end(base.low), end(other.high)
    low = slow / quick if slow and quick else None
    slow, quick = end(base.high), end(other.low)
    return Factor((base.median or 0) / (other.median or 1), low, slow / quick if slow and quick else None)


def group_comparable(
    rows: Iterable[Row], same: Callable[[Row], Hashable], apart: Callable[[Row], Hashable]
) -> list[list[Row]]:
    """Return groups of two or more rows with the same key `same` that differ in `apart`. Rows that were measured
    several times, for example with other seeds, are compared by their order: the second with the second."""
    times: Counter[Hashable] = Counter()
    found: dict[Hashable, list[Row]] = {}
    for row in rows:
        key, own = same(row), apart(row)
        found.setdefault((key, times[key, own]), []).append(row)
        times[key, own] += 1
    return [group for group in found.values() if len(group) > 1]


def limit_dots(pairs: Sequence[tuple[Row, Mark]]) -> tuple[list[tuple[Row, Mark]], list[str]]:
    """Return as many dots as a figure may have, and a note on the others."""
    remaining = thin_out(pairs, MOST_DOTS, lambda pair: (pair[0].backend, pair[1].x, pair[1].y))
    hidden = count_noun(len(pairs) - len(remaining), "dot")
    return remaining, [f"left out: {hidden} near others of their backend"] if len(remaining) < len(pairs) else []


def by_backend(pairs: Iterable[tuple[Row, Mark]]) -> tuple[ChartSeries, ...]:
    """Return dots as one series for each backend."""
    found: dict[str, list[Mark]] = {}
    for row, mark in pairs:
        found.setdefault(row.backend, []).append(mark)
    return tuple(ChartSeries(name, tuple(marks)) for name, marks in found.items())


def diagonal(series: Sequence[ChartSeries], name: str) -> ChartSeries:
    """Return the line on which both values are equal, over the range of the dots."""
    values = [value for one in series for mark in one.marks for value in (mark.x, mark.y)]
    ends = tuple(Mark(value, value) for value in (min(values), max(values)))
    return ChartSeries(name, ends, "line", "guide")
