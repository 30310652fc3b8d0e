"""Split a series into stretches of one level each: outliers are dropped, then the cheapest fit is computed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

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
