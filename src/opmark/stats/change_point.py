"""Find when a series of nightly values changed, by how much, and how sure that is. Equal series give equal answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from opmark.stats import interval
from opmark.stats.summary import exp, robust_deviation
from opmark.stats.verdict import ALPHA

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

MARGIN = 0.02
"""Relative steps up to this are no change."""
FLOORS = 3
"""Steps up to this many noise floors are no change either."""

# Penalty of a further level in the first fit: this times the variance of a value times the logarithm of their number.
# The steps that the fit finds are tested afterwards.
_LEVEL_PENALTY = 2.0
# Largest autocorrelation that is assumed; above it a series wanders and has no levels.
_MAX_AUTOCORRELATION = 0.9
# For an early warning: newest values that have to stand out, values that make the level (at most and at least), and
# the modified z-score at which a value stands out.
_NEWEST = 2
_LEVEL = 30
_LEAST_LEVEL = 10
_STANDS_OUT = 3.5


class Change(NamedTuple):
    at: int
    """Index of the first value after the change."""
    before: float
    after: float
    """Levels on both sides, up to the neighbouring changes: geometric means without outliers."""
    ratio: float
    low: float
    high: float
    """Ratio of `after` to `before`, with its interval of confidence 1 - ALPHA."""
    p: float
    """Probability that a series of this length without any change shows one as clear, at any index."""


def change_points(values: Sequence[float], floor: float = 0.0, margin: float = MARGIN) -> list[Change]:
    """Return all changes of level of at least the margin and three floors, in order of time.

    The first fit has as many levels as possible; then the least certain step is removed until all remaining steps are
    certain. A step is tested by a t-test of the two stretches beside it, with the autocorrelation of the whole series.
    """
    import numpy as np

    wrong = next((value for value in values if not 0 < value < math.inf), None)
    if wrong is not None:
        raise ValueError(f"values of a series have to be positive and finite, got {wrong}")
    if len(values) < 2 * SHORTEST:
        return []
    every = np.log(np.asarray(values, dtype=float))
    kept, shortest = drop_outliers(every)
    logs = every[kept]
    least = math.log1p(max(margin, FLOORS * floor))
    places = segment(logs, shortest, _LEVEL_PENALTY * math.log(len(logs)) * deviation(logs) ** 2)
    while places:
        places = _refine(logs, shortest, places)
        changes = _test_steps(logs, places)
        doubtful = _weakest(changes, least)
        if doubtful is None:
            return [_restore_index(change, every, kept) for change in changes]
        places = [place for place in places if place != doubtful]
    return []


def _restore_index(change: Change, every: Values, kept: NDArray[np.int_]) -> Change:
    """Return the change with its index in the whole series: outliers beside it belong to the side with the nearer
    level."""
    at, last = int(kept[change.at]), int(kept[change.at - 1])
    middle = (math.log(change.before) + math.log(change.after)) / 2
    while at - 1 > last and (every[at - 1] > middle) == (change.ratio > 1):
        at -= 1
    return change._replace(at=at)


def _weakest(changes: Sequence[Change], least: float) -> int | None:
    """Return the place of the least certain change; if all are certain, of the smallest one if it is below `least`."""
    unsure = max(changes, key=lambda change: change.p)
    smallest = min(changes, key=lambda change: abs(math.log(change.ratio)))
    if unsure.p >= ALPHA:
        return unsure.at
    return smallest.at if abs(math.log(smallest.ratio)) < least else None


def _refine(logs: Values, shortest: int, places: Sequence[int]) -> list[int]:
    """Move each place to where it splits the stretches beside it best, until none moves."""
    bounds = [0, *places, len(logs)]
    before: list[int] = []
    while bounds != before:
        before = list(bounds)
        for i in range(1, len(bounds) - 1):
            begin, end = bounds[i - 1], bounds[i + 1]
            bounds[i] = begin + best_split(logs[begin:end], shortest)
    return bounds[1:-1]


def _test_steps(logs: Values, places: Sequence[int]) -> list[Change]:
    import numpy as np

    bounds = [0, *places, len(logs)]
    stretches = [logs[begin:end] for begin, end in pairwise(bounds)]
    carried = _autocorrelation([stretch - np.mean(stretch) for stretch in stretches])
    neighbours = zip(places, pairwise(stretches), strict=True)
    return [_change(at, before, after, carried, len(logs)) for at, (before, after) in neighbours]


def _change(at: int, before: Values, after: Values, carried: float, looks: int) -> Change:
    count = len(before) + len(after)
    squares = sum(float(((stretch - stretch.mean()) ** 2).sum()) for stretch in (before, after))
    # The number of independent values that the correlated ones are worth, less the two levels.
    freedom = max(1.0, count * (1 - carried**2) / (1 + carried**2) - 2)
    inflated = sum(_inflation(len(stretch), carried) / len(stretch) for stretch in (before, after))
    error = math.sqrt(squares / (count - 2) * inflated)
    levels = [float(stretch.mean()) for stretch in (before, after)]
    step = levels[1] - levels[0]
    half = interval.quantile(1 - ALPHA / 2, freedom) * error
    p = 2 * interval.tail(abs(step) / error, freedom) if error > 0 else float(step == 0)
    low, ratio, high = (exp(step + offset) for offset in (-half, 0.0, half))
    return Change(at, exp(levels[0]), exp(levels[1]), ratio, low, high, min(1.0, looks * p))


def _autocorrelation(rests: Sequence[Values]) -> float:
    """Return the lag-1 autocorrelation of deviations from the levels, not below 0.

    Each fitted level makes neighbours look less alike than they are, by about one value's worth; that is corrected.
    """
    squares = sum(float((rest**2).sum()) for rest in rests)
    products = sum(float((rest[1:] * rest[:-1]).sum()) for rest in rests)
    count = sum(len(rest) for rest in rests)
    found = products / squares + len(rests) / count if squares > 0 else 0.0
    return min(max(found, 0.0), _MAX_AUTOCORRELATION)


def _inflation(count: int, carried: float) -> float:
    """Return by how much autocorrelation inflates the variance of the mean of `count` values."""
    rest = 2 * carried * (1 - carried**count) / (count * (1 - carried) ** 2)
    return (1 + carried) / (1 - carried) - rest


def early_warning(values: Sequence[float], floor: float = 0.0, margin: float = MARGIN) -> bool:
    """Return whether both newest values stand out on the same side; a change point would need more values."""
    older = list(values[:-_NEWEST])
    changes = change_points(older, floor, margin) if older else []
    level = [math.log(value) for value in older[changes[-1].at if changes else 0 :][-_LEVEL:]]
    if len(level) < _LEAST_LEVEL:
        return False
    centre = median(level)
    reach = max(_STANDS_OUT * robust_deviation(level), math.log1p(max(margin, FLOORS * floor)))
    newest = [math.log(value) - centre for value in values[-_NEWEST:]]
    return min(newest) > reach or max(newest) < -reach


# Split a series into stretches of one level each: outliers are dropped, then the cheapest fit is computed.

SHORTEST = 3
"""Least number of values of a stretch. One or two nights that stand alone are outliers, not levels."""

# A value is an outlier from this many standard deviations off the median of its neighbourhood.
_OUTLIER_DEVIATIONS = 4.0
# Above this share of values, they are not outliers: the series jumps to and fro between two levels.
_MAX_OUTLIERS = 0.15
# Expected number, over the whole series, of rows of outliers that look like a stretch.
_ROWS = 0.01
# Makes the median absolute deviation of a normal sample an estimate of its standard deviation.
_TO_SIGMA = 1.4826
# Smallest deviation, far below any difference that matters and above rounding errors.
_FINEST = 1e-6


class DroppedOutliers(NamedTuple):
    kept: NDArray[np.int_]
    """Indices of the values that are no outliers. Outliers are not replaced: that would invent evidence."""
    shortest: int
    """Values that a stretch needs in this series, so that a chance row of outliers is not one."""


def deviation(logs: Values) -> float:
    """Return the standard deviation of values around their levels.

    It is estimated from differences of neighbours, of which steps and outliers affect only a few.
    """
    import numpy as np

    return max(float(_TO_SIGMA * np.median(np.abs(np.diff(logs))) / math.sqrt(2)), _FINEST)


def drop_outliers(logs: Values) -> DroppedOutliers:
    """Find the outliers of a series, and the least length of its stretches.

    The more outliers, the longer a stretch has to be and the wider the neighbourhood that outvotes them.
    """
    import numpy as np

    shortest = SHORTEST
    while True:
        medians = _local_medians(logs, shortest - 1)
        far = np.abs(logs - medians) > _OUTLIER_DEVIATIONS * deviation(logs)
        share = float(np.mean(far))
        if share > _MAX_OUTLIERS:
            return DroppedOutliers(np.arange(len(logs)), SHORTEST)
        needed = _shortest_stretch(share, len(logs))
        if needed <= shortest:
            return DroppedOutliers(np.flatnonzero(~far), shortest)
        shortest = needed


def _local_medians(logs: Values, neighbours: int) -> Values:
    """Return the median of that many neighbours on each side; near the ends, of the nearest whole neighbourhood."""
    import numpy as np

    windows = np.lib.stride_tricks.sliding_window_view(logs, min(2 * neighbours + 1, len(logs)))
    medians = np.median(windows, axis=1)
    before = (len(logs) - len(medians)) // 2
    return np.pad(medians, (before, len(logs) - len(medians) - before), mode="edge")


def _shortest_stretch(share: float, count: int) -> int:
    """Return the least length of a stretch, for that share of outliers in a series of that length."""
    return math.ceil(math.log(_ROWS / count) / math.log(share)) if 0 < share < 1 else 1


def segment(logs: Values, shortest: int, penalty: float) -> list[int]:
    """Return where stretches begin, after the first: the exact minimum of the sum of squares plus `penalty` for
    each."""
    import numpy as np

    count = len(logs)
    values = logs - logs.mean()  # sums of squares of values far from 0 would lose digits
    sums, squares = (np.concatenate(([0.0], np.cumsum(x))) for x in (values, values**2))
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    begins = np.zeros(count + 1, dtype=int)
    for end in range(shortest, count + 1):
        start = np.arange(0, end - shortest + 1)
        cost = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / (end - start)
        total = best[start] + cost + penalty
        begins[end] = np.argmin(total)
        best[end] = total[begins[end]]
    found = [int(begins[count])]
    while found[-1] > 0:
        found.append(int(begins[found[-1]]))
    return found[-2::-1]


def best_split(logs: Values, shortest: int) -> int:
    """Return where the second of two stretches begins."""
    import numpy as np

    place = np.arange(shortest, len(logs) - shortest + 1)
    sums = np.cumsum(logs - logs.mean())[place - 1]
    return int(place[np.argmax(sums**2 / (place * (len(logs) - place)))])
