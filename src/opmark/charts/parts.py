"""What several figures need: which numbers can be drawn, who is held against whom, how things are called."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeGuard

from opmark.analysis.rows import Row, Timing
from opmark.charts.dots import thinned
from opmark.schema.chart import Mark, Series
from opmark.units import counted

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
    return [f"{counted(count, 'case')} left out: no usable number (preempted, 0 or none)"] if count else []


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
    hidden = counted(len(pairs) - len(kept), "dot")
    return kept, [f"left out: {hidden} near others of their backend"] if len(kept) < len(pairs) else []


def by_backend(pairs: Iterable[tuple[Row, Mark]]) -> tuple[Series, ...]:
    """Dots, a series a backend."""
    found: dict[str, list[Mark]] = {}
    for row, mark in pairs:
        found.setdefault(row.backend, []).append(mark)
    return tuple(Series(name, tuple(marks)) for name, marks in found.items())


def diagonal(series: Sequence[Series], name: str) -> Series:
    """The line on which both values are the same, as long as the dots reach."""
    values = [value for one in series for mark in one.marks for value in (mark.x, mark.y)]
    ends = tuple(Mark(value, value) for value in (min(values), max(values)))
    return Series(name, ends, "line", "guide")
