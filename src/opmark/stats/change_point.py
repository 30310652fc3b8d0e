"""Find when a series of nightly values changed, by how much, and how sure that is. Equal series give equal answers.

A change is a step between two levels. A series that drifts, that goes to and fro between two states or that wanders has
no levels, and so no change: it is called what it is.
"""

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

LASTING = 60
"""Nights that one of the two levels of a step has to have lasted, so that it is not one of the states in which the
machine stays for some nights."""
BOTH_LASTING = 80
"""The same for both levels together."""
LARGE = 0.10
"""Steps from here on need no such level: states are not as far apart."""

# Penalty of a further level in the first fit: this times the variance of a value times the logarithm of their number.
# The steps that the fit finds are tested afterwards.
_LEVEL_PENALTY = 2.0
# Largest autocorrelation that is assumed.
_MAX_AUTOCORRELATION = 0.9
# Autocorrelation around the levels from which on a series wanders and has no levels.
_WANDERS = 0.7
# Least number of moves between two levels that makes them states.
_MOVES = 3
# How much higher than any other move of the series a step has to be, also where no level has lasted by itself, and over
# how many nights moves are taken.
_PROMINENT = 1.5
_MORE_PROMINENT = 2.0
_MOVES_OVER = (10, 20)
# Share of a step from which on a move away from its level ends the time that the level has lasted.
_EXCURSION = 2 / 3
# Values that a drift takes.
_LEAST_DRIFT = 20
# Standard errors below this come from rounding: the values are equal.
_LEAST_ERROR = 1e-12
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
    settled: bool = True
    """False if it may be one of the states that a machine is in for some nights, or wandering: no level beside it has
    lasted, or the series has moved nearly as far elsewhere."""


class States(NamedTuple):
    """Two levels between which a series goes to and fro."""

    low: float
    high: float
    moves: int


class SeriesShape(NamedTuple):
    """The way a series goes. At most one of its fields says something."""

    changes: list[Change]
    """In order of time."""
    states: States | None = None
    drift: float | None = None
    """The end of the series over its beginning, along a straight line."""


def change_points(values: Sequence[float], floor: float = 0.0, margin: float = MARGIN) -> list[Change]:
    """Return all changes of level of at least the margin and three floors, in order of time."""
    return describe_series(values, floor, margin).changes


def describe_series(values: Sequence[float], floor: float = 0.0, margin: float = MARGIN) -> SeriesShape:
    """Return the changes of level, or else the two states or the drift of a series, if they are larger than the margin
    and three floors.

    The first fit has as many levels as possible; then the least certain step is removed until all remaining steps are
    certain. A step is tested by a t-test of the two stretches beside it, with and without a common trend, and with the
    autocorrelation of the whole series.
    """
    import numpy as np

    wrong = next((value for value in values if not 0 < value < math.inf), None)
    if wrong is not None:
        raise ValueError(f"values of a series have to be positive and finite, got {wrong}")
    if len(values) < 2 * SHORTEST:
        return SeriesShape([])
    every = np.log(np.asarray(values, dtype=float))
    kept, shortest = drop_outliers(every)
    logs = every[kept]
    least = math.log1p(max(margin, FLOORS * floor))
    places = segment(logs, shortest, _LEVEL_PENALTY * math.log(len(logs)) * deviation(logs) ** 2)
    bounds = [0, *places, len(logs)]
    states = _find_states([logs[begin:end] for begin, end in pairwise(bounds)], least)
    if states:
        return SeriesShape([], states=states)
    stays = _list_stays(every, kept, bounds)
    while places:
        places = _refine(logs, shortest, places)
        stretches = [logs[begin:end] for begin, end in pairwise([0, *places, len(logs)])]
        carried = _autocorrelation([stretch - stretch.mean() for stretch in stretches])
        steps = [_step(at, *pair, carried) for at, pair in zip(places, pairwise(stretches), strict=True)]
        changes = []
        for step in sorted(steps, key=lambda step: abs(step.height) / max(step.error, _FINEST)):
            change = _test_step(step, carried, len(logs)) if abs(step.height) >= least else None
            if change is None:
                places = [place for place in places if place != step.at]
                break
            changes.append(change._replace(settled=_is_settled(step, stays)))
        else:
            if carried >= _WANDERS:
                break
            return SeriesShape([_restore_index(change, every, kept) for change in sorted(changes)])
    return SeriesShape([], drift=_find_drift(logs, kept, least))


def _find_states(stretches: Sequence[Values], least: float) -> States | None:
    """Return the two levels that the stretches belong to by turns; None if there are more levels or too few moves."""
    if len(stretches) <= _MOVES:
        return None
    means = [float(stretch.mean()) for stretch in stretches]
    ordered = sorted(means)
    gap, split = max((later - earlier, (later + earlier) / 2) for earlier, later in pairwise(ordered))
    low, high = ([mean for mean in means if (mean > split) == upper] for upper in (False, True))
    moves = sum((earlier > split) != (later > split) for earlier, later in pairwise(means))
    if moves < _MOVES or gap < least / 2 or max(low) - min(low) > gap or max(high) - min(high) > gap:
        return None
    import numpy as np

    values = np.concatenate(list(stretches))
    levels = [float(np.median(values[(values > split) == upper])) for upper in (False, True)]
    return States(exp(levels[0]), exp(levels[1]), moves) if levels[1] - levels[0] >= least else None


def _find_drift(logs: Values, kept: NDArray[np.int_], least: float) -> float | None:
    """Return the ratio of end to beginning of a series along its straight line; None if that may be level."""
    import numpy as np

    if len(logs) < _LEAST_DRIFT:
        return None
    line = np.column_stack([np.ones(len(logs)), (kept - kept.mean()) / (len(logs) - 1)])
    rests = logs - line @ np.linalg.lstsq(line, logs, rcond=None)[0]
    slope, error, freedom = _fit_last(logs, line, _autocorrelation([rests]))
    total = slope * float(np.ptp(line[:, 1]))
    return exp(total) if _chance(slope, error, freedom) < ALPHA and abs(total) >= least else None


def _fit_last(logs: Values, columns: Values, carried: float) -> tuple[float, float, float]:
    """Return the coefficient of the last column in the least squares fit, its standard error, and the degrees of
    freedom, for values that are correlated from night to night."""
    import numpy as np

    first = math.sqrt(1 - carried**2)
    whole = np.column_stack([columns, logs])
    white = np.vstack([first * whole[:1], whole[1:] - carried * whole[:-1]])
    known, values = white[:, :-1], white[:, -1]
    inverse = np.linalg.inv(known.T @ known)
    found = inverse @ known.T @ values
    freedom = len(logs) - columns.shape[1]
    variance = float(((values - known @ found) ** 2).sum()) / freedom
    return float(found[-1]), math.sqrt(max(variance * float(inverse[-1, -1]), 0.0)), freedom


def _restore_index(change: Change, every: Values, kept: NDArray[np.int_]) -> Change:
    """Return the change with its index in the whole series: outliers beside it belong to the side with the nearer
    level."""
    at, last = int(kept[change.at]), int(kept[change.at - 1])
    middle = (math.log(change.before) + math.log(change.after)) / 2
    while at - 1 > last and (every[at - 1] > middle) == (change.ratio > 1):
        at -= 1
    return change._replace(at=at)


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


class _Step(NamedTuple):
    """A step between two stretches, in logarithms."""

    at: int
    before: Values
    after: Values
    height: float
    error: float
    """Standard error of the height."""
    freedom: float


def _step(at: int, before: Values, after: Values, carried: float) -> _Step:
    count = len(before) + len(after)
    squares = sum(float(((stretch - stretch.mean()) ** 2).sum()) for stretch in (before, after))
    # The number of independent values that the correlated ones are worth, less the two levels.
    freedom = max(1.0, count * (1 - carried**2) / (1 + carried**2) - 2)
    inflated = sum(_inflation(len(stretch), carried) / len(stretch) for stretch in (before, after))
    error = math.sqrt(squares / (count - 2) * inflated)
    return _Step(at, before, after, float(after.mean() - before.mean()), error, freedom)


class _Stay(NamedTuple):
    """Nights that a series stayed near one value, by the first fit; or a night that was left out."""

    mean: float
    nights: int


def _list_stays(every: Values, kept: NDArray[np.int_], bounds: Sequence[int]) -> list[_Stay]:
    """Return the stretches between these bounds and the nights that were left out, in order of time."""
    found: list[tuple[int, _Stay]] = []
    for begin, end in pairwise(bounds):
        inside, start = kept[begin:end], begin
        # A night that was left out divides a stretch, so that it can end the time that a level has lasted.
        for place in range(begin + 1, end + 1):
            if place == end or kept[place] != kept[place - 1] + 1:
                found.append((int(kept[start]), _Stay(float(every[inside].mean()), place - start)))
                start = place
    left = set(range(len(every))) - set(kept.tolist())
    found += [(night, _Stay(float(every[night]), 1)) for night in left]
    return [stay for _, stay in sorted(found)]


def _is_settled(step: _Step, stays: Sequence[_Stay]) -> bool:
    """Return whether one of the two levels of a step has lasted, or both together, anywhere in the series, and the step
    stands out. A level lasts until an excursion nearly as far as the step; a single night off is one only if it is near
    the other level."""
    height = abs(step.height)
    if height >= math.log1p(LARGE):
        return _stands_out(step, _PROMINENT)
    longest = [0, 0]
    levels = float(step.before.mean()), float(step.after.mean())
    for side, (level, other) in enumerate((levels, levels[::-1])):
        lasted = 0
        for stay in stays:
            if stay.nights >= SHORTEST or abs(stay.mean - level) < _EXCURSION * height:
                lasted = lasted + stay.nights if abs(stay.mean - level) < _EXCURSION * height else 0
            elif abs(stay.mean - other) < (1 - _EXCURSION) * height:
                lasted = 0
            longest[side] = max(longest[side], lasted)
    if max(longest) >= LASTING:
        return _stands_out(step, _PROMINENT)
    return sum(longest) >= BOTH_LASTING and _stands_out(step, _MORE_PROMINENT)


def _stands_out(step: _Step, factor: float) -> bool:
    """Return whether a step is higher than any other move of the stretches beside it, by a factor: a series that
    wanders moves as far elsewhere. A move is the difference of two neighbouring means over so many nights, or over as
    many as the shorter stretch has."""
    import numpy as np

    for nights in _MOVES_OVER:
        width = min(len(step.before), len(step.after), nights)
        farthest = 0.0
        for stretch in (step.before, step.after):
            if len(stretch) >= 2 * width:
                sums = np.concatenate([[0.0], np.cumsum(stretch - stretch.mean())])
                means = (sums[width:] - sums[:-width]) / width
                farthest = max(farthest, float(np.max(np.abs(means[width:] - means[:-width]))))
        if abs(float(step.after[:width].mean() - step.before[-width:].mean())) < factor * farthest:
            return False
    return True


def _test_step(step: _Step, carried: float, looks: int) -> Change | None:
    """Return the change, or None if chance or a drift may have made it. A drift has a step wherever it is cut, but
    beside a trend nothing is left of it."""
    import numpy as np

    p = looks * _chance(step.height, step.error, step.freedom)
    if p >= ALPHA:
        return None
    night = np.arange(len(step.before) + len(step.after))
    trend = np.column_stack([np.ones(len(night)), night - night.mean(), night >= len(step.before)])
    jump, error, freedom = _fit_last(np.concatenate([step.before, step.after]), trend, carried)
    p = max(p, looks * _chance(jump, error, freedom))
    if p >= ALPHA or jump * step.height < 0:
        return None
    half = interval.quantile(1 - ALPHA / 2, step.freedom) * step.error
    low, ratio, high = (exp(step.height + offset) for offset in (-half, 0.0, half))
    return Change(step.at, exp(float(step.before.mean())), exp(float(step.after.mean())), ratio, low, high, p)


def _chance(height: float, error: float, freedom: float) -> float:
    """Return the probability that a value without a step has one as high."""
    return 2 * interval.tail(abs(height) / error, freedom) if error > _LEAST_ERROR else float(height == 0)


def _autocorrelation(rests: Sequence[Values]) -> float:
    """Return the lag-1 autocorrelation of deviations from the levels, not below 0.

    Each fitted level makes neighbours look less alike than they are, by about one value's worth; that is corrected.
    """
    squares = sum(float((rest**2).sum()) for rest in rests)
    products = sum(float((rest[1:] * rest[:-1]).sum()) for rest in rests)
    count = sum(len(rest) for rest in rests)
    found = products / squares if squares > 0 else 0.0
    found += (1 + 3 * max(found, 0.0)) * len(rests) / count if squares > 0 else 0.0
    return min(max(found, 0.0), _MAX_AUTOCORRELATION)


def _inflation(count: int, carried: float) -> float:
    """Return by how much autocorrelation inflates the variance of the mean of `count` values."""
    rest = 2 * carried * (1 - carried**count) / (count * (1 - carried) ** 2)
    return (1 + carried) / (1 - carried) - rest


def early_warning(values: Sequence[float], floor: float = 0.0, margin: float = MARGIN) -> bool:
    """Return whether both newest values stand out on the same side; a change point would need more values. A series
    of two states has no level to stand out from."""
    older = list(values[:-_NEWEST])
    shape = describe_series(older, floor, margin)
    level = [math.log(value) for value in older[shape.changes[-1].at if shape.changes else 0 :][-_LEVEL:]]
    if len(level) < _LEAST_LEVEL or shape.states:
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
