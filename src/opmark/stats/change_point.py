"""When did a series of nights change, by how much, and how sure is that? Deterministic: equal series, equal answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from opmark.stats import student
from opmark.stats.factors import exp
from opmark.stats.segments import SHORTEST, best_split, cleaned, deviation, segmented
from opmark.stats.summary import median, robust_deviation
from opmark.stats.verdict import ALPHA

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

MARGIN = 0.02
"""Steps up to this are no change."""
FLOORS = 3
"""Nor are those up to so many noise floors."""

# What a further level has to explain in a first fit, in variances of a value times the logarithm of their number. What
# that finds is tested thereafter.
_DEMAND = 2.0
# Above this a series wanders rather than that it has levels.
_MOST_CARRIED = 0.9
# Of an early warning: values that have to stand out, those that tell the level, and the modified z that is far.
_NEWEST = 2
_LEVEL = 30
_LEAST_LEVEL = 10
_STANDS_OUT = 3.5


class Change(NamedTuple):
    at: int
    """Place of the first value after it."""
    before: float
    after: float
    """Levels of the stretches on both sides, up to the changes next to it: geometric centres, without outliers."""
    ratio: float
    low: float
    high: float
    """Of after over before, with the ends of its interval, 1 - ALPHA, of a change at this place."""
    p: float
    """How often a series of this length without any change has one as clear: all places that it may be at count."""


def change_points(values: Sequence[float], floor: float = 0.0, margin: float = MARGIN) -> list[Change]:
    """All changes of level of at least the margin and three floors, the first one first.

    A fit of as many levels as may be, from which the least sure step is taken out until all that remain are sure: a
    t-test of the two stretches next to it, whose values hang together from night to night as the whole series shows.
    """
    import numpy as np

    wrong = next((value for value in values if not 0 < value < math.inf), None)
    if wrong is not None:
        raise ValueError(f"values of a series have to be positive and finite, got {wrong}")
    if len(values) < 2 * SHORTEST:
        return []
    every = np.log(np.asarray(values, dtype=float))
    kept, shortest = cleaned(every)
    logs = every[kept]
    least = math.log1p(max(margin, FLOORS * floor))
    places = segmented(logs, shortest, _DEMAND * math.log(len(logs)) * deviation(logs) ** 2)
    while places:
        places = _settled(logs, shortest, places)
        changes = _changes(logs, places)
        doubtful = _doubtful(changes, least)
        if doubtful is None:
            return [_placed(change, every, kept) for change in changes]
        places = [place for place in places if place != doubtful]
    return []


def _placed(change: Change, every: Values, kept: NDArray[np.int_]) -> Change:
    """In the whole series: outliers next to it are of the side whose level is nearer."""
    at, last = int(kept[change.at]), int(kept[change.at - 1])
    middle = (math.log(change.before) + math.log(change.after)) / 2
    while at - 1 > last and (every[at - 1] > middle) == (change.ratio > 1):
        at -= 1
    return change._replace(at=at)


def _doubtful(changes: Sequence[Change], least: float) -> int | None:
    """Place of the least sure change; if all are sure, of the smallest if that is too small."""
    unsure = max(changes, key=lambda change: change.p)
    smallest = min(changes, key=lambda change: abs(math.log(change.ratio)))
    if unsure.p >= ALPHA:
        return unsure.at
    return smallest.at if abs(math.log(smallest.ratio)) < least else None


def _settled(logs: Values, shortest: int, places: Sequence[int]) -> list[int]:
    """Each place moved to where it splits the stretches next to it best, until none moves: some were taken out."""
    bounds = [0, *places, len(logs)]
    before: list[int] = []
    while bounds != before:
        before = list(bounds)
        for i in range(1, len(bounds) - 1):
            begin, end = bounds[i - 1], bounds[i + 1]
            bounds[i] = begin + best_split(logs[begin:end], shortest)
    return bounds[1:-1]


def _changes(logs: Values, places: Sequence[int]) -> list[Change]:
    import numpy as np

    bounds = [0, *places, len(logs)]
    stretches = [logs[begin:end] for begin, end in pairwise(bounds)]
    carried = _carried([stretch - np.mean(stretch) for stretch in stretches])
    neighbours = zip(places, pairwise(stretches), strict=True)
    return [_change(at, before, after, carried, len(logs)) for at, (before, after) in neighbours]


def _change(at: int, before: Values, after: Values, carried: float, looks: int) -> Change:
    count = len(before) + len(after)
    squares = sum(float(((stretch - stretch.mean()) ** 2).sum()) for stretch in (before, after))
    # As many independent values as the others are worth, less the two levels.
    freedom = max(1.0, count * (1 - carried**2) / (1 + carried**2) - 2)
    inflated = sum(_inflation(len(stretch), carried) / len(stretch) for stretch in (before, after))
    error = math.sqrt(squares / (count - 2) * inflated)
    levels = [float(stretch.mean()) for stretch in (before, after)]
    step = levels[1] - levels[0]
    half = student.quantile(1 - ALPHA / 2, freedom) * error
    p = 2 * student.tail(abs(step) / error, freedom) if error > 0 else float(step == 0)
    low, ratio, high = (exp(step + offset) for offset in (-half, 0.0, half))
    return Change(at, exp(levels[0]), exp(levels[1]), ratio, low, high, min(1.0, looks * p))


def _carried(rests: Sequence[Values]) -> float:
    """How much of a night's deviation from its level is carried into the next: AR(1), not below 0.

    Each level that was fitted makes neighbours look more unlike than they are, by about one value's worth.
    """
    squares = sum(float((rest**2).sum()) for rest in rests)
    products = sum(float((rest[1:] * rest[:-1]).sum()) for rest in rests)
    count = sum(len(rest) for rest in rests)
    found = products / squares + len(rests) / count if squares > 0 else 0.0
    return min(max(found, 0.0), _MOST_CARRIED)


def _inflation(count: int, carried: float) -> float:
    """Of the variance of the mean of so many values, of which each carries a part of the one before."""
    rest = 2 * carried * (1 - carried**count) / (count * (1 - carried) ** 2)
    return (1 + carried) / (1 - carried) - rest


def early_warning(values: Sequence[float], floor: float = 0.0, margin: float = MARGIN) -> bool:
    """Whether the two newest values both stand out on the same side, before there are enough for a change point."""
    older = list(values[:-_NEWEST])
    changes = change_points(older, floor, margin) if older else []
    level = [math.log(value) for value in older[changes[-1].at if changes else 0 :][-_LEVEL:]]
    if len(level) < _LEAST_LEVEL:
        return False
    centre = median(level)
    reach = max(_STANDS_OUT * robust_deviation(level), math.log1p(max(margin, FLOORS * floor)))
    newest = [math.log(value) - centre for value in values[-_NEWEST:]]
    return min(newest) > reach or max(newest) < -reach
