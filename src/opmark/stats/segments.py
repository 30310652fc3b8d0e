"""A series as stretches of one level each: outliers taken out, then the fit that costs least."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

SHORTEST = 3
"""Values of a stretch, at least. One or two nights that stand alone are outliers, not levels."""

# Standard deviations off the median of its neighbourhood at which a value is an outlier.
_FAR = 4.0
# Share of values above which they are no outliers but one of two levels between which a series goes to and fro.
_MANY = 0.15
# How often outliers may come in such a row that they look like a stretch, over the whole series.
_ROWS = 0.01
# Makes the median absolute deviation of a normal sample an estimate of its standard deviation.
_TO_SIGMA = 1.4826
# Least deviation that is told from none: far below every difference that matters, above rounding.
_FINEST = 1e-6


class Cleaned(NamedTuple):
    kept: NDArray[np.int_]
    """Places of the values that are no outliers. To put anything in place of these would make up evidence."""
    shortest: int
    """Values that a stretch needs here, so that it is none of the rows that outliers make by chance."""


def deviation(logs: Values) -> float:
    """Of single values around their levels, from differences of neighbours: steps and outliers touch few of these."""
    import numpy as np

    return max(float(_TO_SIGMA * np.median(np.abs(np.diff(logs))) / math.sqrt(2)), _FINEST)


def cleaned(logs: Values) -> Cleaned:
    """The more outliers, the longer a stretch has to be, and the wider the neighbourhood that outvotes them."""
    import numpy as np

    shortest = SHORTEST
    while True:
        around = _around(logs, shortest - 1)
        far = np.abs(logs - around) > _FAR * deviation(logs)
        share = float(np.mean(far))
        if share > _MANY:
            return Cleaned(np.arange(len(logs)), SHORTEST)
        needed = _needed(share, len(logs))
        if needed <= shortest:
            return Cleaned(np.flatnonzero(~far), shortest)
        shortest = needed


def _around(logs: Values, neighbours: int) -> Values:
    """The median of so many values on each side; near the ends, that of the nearest whole neighbourhood."""
    import numpy as np

    windows = np.lib.stride_tricks.sliding_window_view(logs, min(2 * neighbours + 1, len(logs)))
    medians = np.median(windows, axis=1)
    before = (len(logs) - len(medians)) // 2
    return np.pad(medians, (before, len(logs) - len(medians) - before), mode="edge")


def _needed(share: float, count: int) -> int:
    """Values of a stretch, for that share of outliers in a series so long."""
    return math.ceil(math.log(_ROWS / count) / math.log(share)) if 0 < share < 1 else 1


def segmented(logs: Values, shortest: int, penalty: float) -> list[int]:
    """Where stretches begin, after the first: least sum of squares plus `penalty` for each of them, exactly."""
    import numpy as np

    count = len(logs)
    values = logs - logs.mean()  # sums of squares of what is far from 0 would cancel
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
    """Of two stretches: where the second begins."""
    import numpy as np

    place = np.arange(shortest, len(logs) - shortest + 1)
    sums = np.cumsum(logs - logs.mean())[place - 1]
    return int(place[np.argmax(sums**2 / (place * (len(logs) - place)))])
