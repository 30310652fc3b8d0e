"""What decides a number: shares of variance, interactions, knees and correlation over a design of measured points.

Values are logarithms of times (or energies), one for each point and each process round. Rounds are replicates: what
differs between them at the same point is noise, and every statistic here tells it from effect by that alone.

The shares are those of the functional analysis of variance (first-order and pairwise Sobol indices) of an anchored
expansion: curves through a base point, one for each factor, and grids for pairs of factors. The variance of a component
is estimated from products of different rounds, in which noise cancels: a factor that does nothing has a share of about
0, however noisy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]

DRAWS = 499
"""Number of resamples of the noise behind every interval and probability."""
ALPHA = 0.05
_DRAWS_PER_TEST = 4 / ALPHA
_PRIOR_FREEDOM = 4.0
"""The noise of a point is shrunk towards that of all points, as if so many further rounds had been seen."""
_COMPLETE = 0.3
"""A round counts if it has at least this share of the points; a budget may cut the last one."""
MOST_KNEES = 3
LEAST_LEVELS = 5
"""Levels that a curve needs before a knee is looked for: a line and a bent line have 2 and 4 parameters."""
LEAST_BEND = 0.1
"""A knee is reported where the exponent of the time changes by at least this."""
_KNEE_PROBABILITY = 0.999
"""Quantile that an improvement by a knee has to pass: it is the best of many places that were tried."""
_FINE = 0.01
"""What a broken line misses by so little is no further knee, however quiet the machine is: bends are often round."""
_GRID = 200
"""Places that a knee is looked for at."""
_FILLINGS = 20
_CELLS = 16
"""Cells into which the range of an ordered factor is cut for averages over it."""
_BINS = 5


class FactorAxis(NamedTuple):
    """A factor with its levels in order."""

    name: str
    places: tuple[float, ...]
    """Where each level lies on the scale of the factor, as the logarithm of its value; for categories: 0, 1, 2."""
    base: int
    """Index of the level that the other factors are varied at."""
    ordered: bool = True
    """False for categories, between which nothing can be interpolated."""


@dataclass(frozen=True)
class FactorDesign:
    """Measured points. A point is the index of the level of each axis."""

    axes: tuple[FactorAxis, ...]
    points: tuple[tuple[int, ...], ...]
    values: Array
    """Points by rounds; nan where a round has no value."""

    @property
    def base(self) -> tuple[int, ...]:
        return tuple(axis.base for axis in self.axes)

    def complete(self) -> FactorDesign:
        """Return the design without rounds that have few points, and without points that have one round alone."""
        rows, rounds = _usable(self.values)
        points = tuple(point for point, keep in zip(self.points, rows, strict=True) if keep)
        return FactorDesign(self.axes, points, self.values[rows][:, rounds])

    def curve(self, axis: int) -> tuple[list[int], Array]:
        """Return the levels of an axis that were measured with all others at the base, and their values by round; nan
        where there is none."""
        import numpy as np

        rest = [other for other in range(len(self.axes)) if other != axis]
        found = {
            point[axis]: row
            for point, row in zip(self.points, self.values, strict=True)
            if all(point[other] == self.axes[other].base for other in rest)
        }
        levels = sorted(found)
        values = np.array([found[level] for level in levels]) if levels else np.empty((0, 0))
        rows, rounds = _usable(values)
        return [level for level, keep in zip(levels, rows, strict=True) if keep], values[rows][:, rounds]


def _usable(values: Array) -> tuple[list[bool], list[bool]]:
    """Return which rows and which rounds are used: rounds that have a share of the rows, rows that two rounds have."""
    import numpy as np

    known = np.isfinite(values)
    seen = max(1, int(known.any(axis=1).sum())) if known.size else 1
    rounds = known.sum(axis=0) >= _COMPLETE * seen
    return (known[:, rounds].sum(axis=1) >= 2).tolist(), rounds.tolist()


# One curve: is there an effect, does it rise or fall, and where does it bend?


class CurveNoise(NamedTuple):
    """How well the mean of a level is known, relative to the others of its curve."""

    variance: float
    """Variance of the mean of a level."""
    freedom: int


def level_means(values: Array) -> Array:
    """Return the mean of each level of a curve (levels by rounds), as if every level had a value in every round."""
    means: Array = _fill_curve(values).mean(axis=1)
    return means


def curve_noise(values: Array) -> CurveNoise:
    """Return the noise of the levels of a curve (levels by rounds), without what a whole round has in common."""
    import numpy as np

    levels, rounds = values.shape
    known = int(np.isfinite(values).sum())
    freedom = known - levels - rounds + 1
    if freedom < 1:
        return CurveNoise(math.nan, 0)
    whole = _fill_curve(values)
    residual = whole - whole.mean(axis=1, keepdims=True) - whole.mean(axis=0, keepdims=True) + whole.mean()
    return CurveNoise(float((residual**2).sum()) / freedom / (known / levels), freedom)


def _fill_curve(values: Array) -> Array:
    """Return the values with those of an additive model, level and round, where one is missing."""
    import numpy as np

    missing = ~np.isfinite(values)
    if not missing.any():
        return values
    found = np.where(missing, 0.0, values)
    found = np.where(missing, (found.sum(axis=1) / (~missing).sum(axis=1))[:, None], found)
    for _ in range(_FILLINGS):
        model = found.mean(axis=1, keepdims=True) + found.mean(axis=0, keepdims=True) - found.mean()
        found = np.where(missing, model, found)
    return found


def trend(values: Array) -> str:
    """Return how a curve runs, as far as noise lets it be seen: `rising`, `falling`, `not monotone` or `flat`. Every
    pair of levels is compared, so that a slow turn is seen too."""
    noise = curve_noise(values)
    if not noise.freedom:
        return "unknown"
    means = level_means(values)
    pairs = list(combinations(range(len(means)), 2))
    limit = _t(1 - ALPHA / 2 / len(pairs), noise.freedom) * math.sqrt(2 * noise.variance)
    up = any(means[b] - means[a] > limit for a, b in pairs)
    down = any(means[a] - means[b] > limit for a, b in pairs)
    return {(True, True): "not monotone", (True, False): "rising", (False, True): "falling"}.get((up, down), "flat")


def best_levels(values: Array) -> tuple[int, list[int]]:
    """Return the index of the lowest level of a curve, and all that are not surely above it."""
    means, noise = level_means(values), curve_noise(values)
    best = int(means.argmin())
    if not noise.freedom:
        return best, list(range(len(means)))
    limit = _t(1 - ALPHA / max(1, len(means) - 1), noise.freedom) * math.sqrt(2 * noise.variance)
    return best, [place for place, mean in enumerate(means) if mean - means[best] <= limit]


class KneePlace(NamedTuple):
    """A place at which the exponent of a curve changes."""

    at: float
    low: float
    high: float
    """Ends of the 95 % interval of the place."""
    before: float
    after: float
    """Slopes of the logarithm on both sides."""


def find_knees(places: Sequence[float], means: Sequence[float], noise: CurveNoise) -> list[KneePlace]:
    """Return where a curve bends: knots of a broken line, added one by one while each explains more than noise does.

    The interval of a knot holds all places that fit about as well (an F test). What a broken line cannot follow counts
    as noise too, so that the interval of a knee that is no corner is wide.
    """
    import numpy as np

    x, y = np.asarray(places, float), np.asarray(means, float)
    if len(x) < LEAST_LEVELS or not noise.freedom:
        return []
    grid = np.unique(np.concatenate([np.linspace(x[1], x[-2], _GRID), x[1:-1]]))
    knots: list[float] = []
    rss = _broken_line(x, y, knots)[0]
    while len(knots) < MOST_KNEES and len(x) - 2 * (len(knots) + 2) >= 0:
        free = [place for place in grid if _leaves_points(x, [*knots, place])]
        if not free:
            break
        tried = [_broken_line(x, y, [*knots, place])[0] for place in free]
        place = free[int(np.argmin(tried))]
        trial = _settle(x, y, [*knots, place], grid)
        smaller, slopes = _broken_line(x, y, trial)
        scale, freedom = _scale(noise, smaller, len(x) - 2 - 2 * len(trial))
        gain = (rss - smaller) / 2
        bends = np.abs(np.diff(slopes))
        if gain <= scale * _f(_KNEE_PROBABILITY, 2, freedom) or bends.min() < LEAST_BEND:
            break
        knots, rss = trial, smaller
    if not knots:
        return []
    scale, freedom = _scale(noise, rss, len(x) - 2 - 2 * len(knots))
    limit = rss + scale * _f(1 - ALPHA, 1, freedom)
    slopes = _broken_line(x, y, knots)[1]
    return [_with_interval(x, y, knots, place, grid, limit, slopes) for place in range(len(knots))]


def _with_interval(
    x: Array, y: Array, knots: list[float], place: int, grid: Array, limit: float, slopes: Array
) -> KneePlace:
    at = knots[place]
    rest = [knot for other, knot in enumerate(knots) if other != place]
    lower = max([knot for knot in rest if knot < at], default=-math.inf)
    upper = min([knot for knot in rest if knot > at], default=math.inf)
    near = [g for g in grid if lower < g < upper]
    fits = [g for g in near if _broken_line(x, y, [*rest, g])[0] <= limit]
    step = (grid[-1] - grid[0]) / _GRID  # between two places that were tried
    low, high = max(min([*fits, at]) - step, x[0]), min(max([*fits, at]) + step, x[-1])
    return KneePlace(at, low, high, float(slopes[place]), float(slopes[place + 1]))


def _broken_line(x: Array, y: Array, knots: Sequence[float]) -> tuple[float, Array]:
    """Return the sum of squares that a continuous broken line leaves, and the slope of each of its parts."""
    import numpy as np

    columns = [np.ones_like(x), x, *(np.maximum(x - knot, 0.0) for knot in sorted(knots))]
    basis = np.stack(columns, axis=1)
    found = np.linalg.lstsq(basis, y, rcond=None)[0]
    return float(((y - basis @ found) ** 2).sum()), np.cumsum(found[1:])


def _settle(x: Array, y: Array, knots: list[float], grid: Array) -> list[float]:
    """Move each knot to its best place given the others, twice."""
    found = sorted(knots)
    for _ in range(2):
        for place in range(len(found)):
            rest = found[:place] + found[place + 1 :]
            free = [g for g in grid if _leaves_points(x, [*rest, g])]
            found[place] = min(free, key=lambda g: _broken_line(x, y, [*rest, g])[0])
        found.sort()
    return found


def _leaves_points(x: Array, knots: Sequence[float]) -> bool:
    """Whether every part between knots has two points, so that it has a slope of its own."""
    ends = [-math.inf, *sorted(knots), math.inf]
    return all(((x >= low) & (x <= high)).sum() >= 2 for low, high in pairwise(ends))


def _scale(noise: CurveNoise, rss: float, left: int) -> tuple[float, int]:
    """Return the variance by which a fit is judged: that of noise, or that of what the line cannot follow."""
    misfit = rss / left if left > 0 else 0.0
    variance = max(noise.variance, _FINE**2)
    return (misfit, left) if misfit > variance else (variance, noise.freedom)


def bend_place(
    places: Sequence[float], values: Sequence[float], deviations: Sequence[float]
) -> tuple[float, int] | None:
    """Return the interval (by the index of its lower end) in which a further level would tell most, with how much: it
    is beside the level that lies furthest from the line between its neighbours, relative to what the uncertainties
    explain. None if no level lies off by more than they explain."""
    found: tuple[float, int] | None = None
    for k in range(1, len(places) - 1):
        share = (places[k] - places[k - 1]) / (places[k + 1] - places[k - 1])
        off = abs(values[k] - (1 - share) * values[k - 1] - share * values[k + 1])
        spread = math.sqrt(
            deviations[k] ** 2 + ((1 - share) * deviations[k - 1]) ** 2 + (share * deviations[k + 1]) ** 2
        )
        # A bend within a short interval is known well enough already.
        width = max(places[k] - places[k - 1], places[k + 1] - places[k])
        score = off / spread * width / (places[-1] - places[0]) * len(places) if spread else math.inf
        if off > 2 * spread and (found is None or score > found[0]):
            found = score, (k - 1 if places[k] - places[k - 1] >= places[k + 1] - places[k] else k)
    return found


# All factors together: shares of the variance.


class VarianceShare(NamedTuple):
    share: float
    """Estimate, clipped to 0 and 1."""
    low: float
    high: float
    p: float
    """Probability of at least as much if there were noise alone."""


class VarianceShares(NamedTuple):
    main: dict[str, VarianceShare]
    """By factor: its own share, the first-order Sobol index."""
    total: dict[str, float]
    """By factor: its own share and those of its interactions."""
    pairs: dict[tuple[str, str], VarianceShare]
    spread: float
    """Standard deviation of the logarithm over the ranges of all factors."""
    noise: float
    """Standard deviation of the logarithm between two processes at the same point."""


def variance_shares(design: FactorDesign, seed: int = 0, draws: int = DRAWS) -> VarianceShares | None:
    """Return the share of each factor and of each measured pair. None where there are not two rounds of the base and of
    one more level of a factor."""
    import numpy as np

    design = design.complete()
    rounds = design.values.shape[1]
    if rounds < 2 or design.base not in design.points:
        return None
    components = _components(design)
    if not components:
        return None
    # The least probability is one over the draws, and it has to stay small when it is corrected for all components.
    tests = max(draws, math.ceil(_DRAWS_PER_TEST * len(components)))
    missing = ~np.isfinite(design.values)
    centred = _fill(_centre(design.values)[None], missing)[0]
    means = centred.mean(axis=1)
    every = _fill(_noise_draws(centred, missing, tests, seed), missing)
    average, noise = every.mean(axis=2).T, every[:draws]
    # Where values are missing, products of rounds are not free of noise: so much is made by noise alone.
    bias = {key: float(_variance(one, noise).mean()) if missing.any() else 0.0 for key, one in components.items()}
    found = {key: float(_variance(one, centred[None])[0]) - bias[key] for key, one in components.items()}
    total = sum(max(0.0, value) for value in found.values())
    plain = {key: float(_square(component @ means)) for key, component in components.items()}
    above = sum(plain.values())
    drawn: dict[tuple[str, ...], Array] = {}
    chance: dict[tuple[str, ...], float] = {}
    for key, component in components.items():
        alone = _square(component @ average)
        chance[key] = float((1 + (alone >= plain[key]).sum()) / (1 + tests))
        drawn[key] = _variance(component, means[None, :, None] + noise) - bias[key]
    sums = np.sum([np.maximum(values, 0.0) for values in drawn.values()], axis=0)
    shares: dict[tuple[str, ...], VarianceShare] = {}
    for key, values in drawn.items():
        if total <= 0 or above <= 0:
            shares[key] = VarianceShare(0.0, 0.0, 1.0, chance[key])
            continue
        spread = values / np.where(sums > 0, sums, 1.0) - plain[key] / above
        low, high = np.quantile(spread, [1 - ALPHA / 2, ALPHA / 2])
        share = found[key] / total
        clipped = [min(1.0, max(0.0, float(value))) for value in (share, share - low, share - high)]
        shares[key] = VarianceShare(clipped[0], clipped[1], clipped[2], chance[key])
    main = {key[0]: value for key, value in shares.items() if len(key) == 1}
    pairs = {(key[0], key[1]): value for key, value in shares.items() if len(key) == 2}
    totals = {
        name: min(1.0, own.share + sum(one.share for key, one in pairs.items() if name in key))
        for name, own in main.items()
    }
    deviation = float(np.sqrt(_point_variances(centred, missing).mean()))
    return VarianceShares(main, totals, pairs, math.sqrt(max(0.0, total)), deviation)


def _centre(values: Array) -> Array:
    """Return the values without what a whole round has in common, such as a slower machine."""
    import numpy as np

    whole = values[np.isfinite(values).all(axis=1)]
    return values - (whole.mean(axis=0) - whole.mean() if len(whole) else 0.0)


def _fill(draws: Array, missing: NDArray[np.bool_]) -> Array:
    """Return draws (draws by points by rounds) with the mean of the other rounds of a point where one is missing."""
    import numpy as np

    if not missing.any():
        return draws
    known = np.where(missing, 0.0, draws)
    means = known.sum(axis=2) / (~missing).sum(axis=1)
    return np.asarray(np.where(missing, means[:, :, None], draws))


def _components(design: FactorDesign) -> dict[tuple[str, ...], Array]:
    """Return for each factor and each pair the matrix that makes its component of the analysis of variance from the
    values of the points. All rows weigh the same: they are cells of equal width, or categories."""
    import numpy as np

    place_of = {point: number for number, point in enumerate(design.points)}
    count, base = len(design.points), design.base

    def unit(**levels: int) -> Array:
        changed = list(base)
        for axis, level in levels.items():
            changed[int(axis[1:])] = level
        row = np.zeros(count)
        row[place_of[tuple(changed)]] = 1.0
        return row

    origin = unit()
    curves: dict[int, tuple[list[int], Array]] = {}
    for number, axis in enumerate(design.axes):
        levels = [
            level for level in range(len(axis.places)) if (*base[:number], level, *base[number + 1 :]) in place_of
        ]
        if len(levels) > 1:
            rows = np.array([unit(**{f"_{number}": level}) - origin for level in levels])
            curves[number] = levels, _interpolation(axis, levels, levels) @ rows
    sums = {number: rows.copy() for number, (_, rows) in curves.items()}
    components: dict[tuple[str, ...], Array] = {}
    for a, b in combinations(curves, 2):
        grid = _pair_grid(design, a, b, curves[a][0], curves[b][0])
        if grid is None:
            continue
        first, second = grid
        corners = np.array([
            [unit(**{f"_{a}": i, f"_{b}": j}) - unit(**{f"_{a}": i}) - unit(**{f"_{b}": j}) + origin for j in second]
            for i in first
        ])  # fmt: skip
        along = [_interpolation(design.axes[n], curves[n][0], own) for n, own in ((a, first), (b, second))]
        full = np.einsum("la,mb,abp->lmp", along[0], along[1], corners)
        rows, columns = full.mean(axis=1), full.mean(axis=0)
        sums[a] += rows
        sums[b] += columns
        interaction = full - rows[:, None] - columns[None] + rows.mean(axis=0)
        components[design.axes[a].name, design.axes[b].name] = interaction.reshape(-1, count)
    main: dict[tuple[str, ...], Array] = {
        (design.axes[number].name,): rows - rows.mean(axis=0) for number, rows in sums.items()
    }
    return {**main, **components}


def _pair_grid(
    design: FactorDesign, a: int, b: int, first: Sequence[int], second: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """Return the levels of two axes of which every combination was measured with all other axes at the base, the base
    among them; None if there is no combination off both curves."""
    base = design.base
    rest = [axis for axis in range(len(base)) if axis not in (a, b)]
    seen = {
        (point[a], point[b])
        for point in design.points
        if all(point[axis] == base[axis] for axis in rest) and point[a] != base[a] and point[b] != base[b]
    }
    across = sorted({j for _, j in seen if j in second})
    down = [i for i in sorted({i for i, _ in seen if i in first}) if all((i, j) in seen for j in across)]
    if not across or not down:
        return None
    return sorted({*down, base[a]}), sorted({*across, base[b]})


def _interpolation(axis: FactorAxis, levels: Sequence[int], known: Sequence[int]) -> Array:
    """Return the matrix that extends values at the known levels over the range that all levels span: to the middles of
    cells of equal width, or to every category. Categories that were not measured in pairs have no interaction that is
    known of."""
    import numpy as np

    if not axis.ordered:
        return np.array([[float(level == other) for other in known] for level in levels])
    first, last = axis.places[levels[0]], axis.places[levels[-1]]
    cells = first + (last - first) * (np.arange(_CELLS) + 0.5) / _CELLS
    places = [axis.places[level] for level in known]
    return np.stack([np.interp(cells, places, unit) for unit in np.eye(len(known))], axis=1)


def _square(values: Array) -> Array:
    import numpy as np

    return np.asarray((values**2).mean(axis=0))


def _variance(component: Array, draws: Array) -> Array:
    """Return the variance of a component for each draw (draws by points by rounds), from products of different rounds,
    in which noise cancels."""
    import numpy as np

    rounds = draws.shape[2]
    of_means = _square(component @ draws.mean(axis=2).T)
    of_rounds = sum(_square(component @ draws[:, :, one].T) for one in range(rounds))
    return np.asarray((rounds**2 * of_means - of_rounds) / (rounds * (rounds - 1)))


def _point_variances(values: Array, missing: NDArray[np.bool_]) -> Array:
    """Return the variance between rounds at each point, shrunk towards that of all points."""
    import numpy as np

    freedom = (~missing).sum(axis=1) - 1
    squares = ((values - values.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)  # what was filled in adds nothing
    return np.asarray((squares + _PRIOR_FREEDOM * squares.sum() / freedom.sum()) / (freedom + _PRIOR_FREEDOM))


def _noise_draws(values: Array, missing: NDArray[np.bool_], draws: int, seed: int) -> Array:
    """Return made-up noise (draws by points by rounds): what rounds differed by, resampled over all points."""
    import numpy as np

    points, rounds = values.shape
    deviations = np.sqrt(_point_variances(values, missing) * points / max(1, points - 1))
    residuals = values - values.mean(axis=1, keepdims=True)
    pool = (residuals / np.where(deviations > 0, deviations, 1.0)[:, None])[~missing]
    spread = pool.std()
    pool = pool / spread if spread > 0 else pool
    # The means of points and of rounds were taken from the same values.
    freedom = int((~missing).sum()) - points - rounds + 1
    generator = np.random.default_rng(seed)
    drawn: Array = generator.choice(pool, (draws, points, rounds)) * deviations[None, :, None]
    # How large the noise is, is itself known from so many differences only.
    drawn *= np.sqrt(freedom / generator.chisquare(freedom, draws))[:, None, None]
    return drawn


# Correlation between a factor and the number, over all points.


class FactorCorrelation(NamedTuple):
    spearman: float | None
    low: float | None
    high: float | None
    """Rank correlation with its interval; None for categories."""
    information: float
    """Mutual information in bits, less what chance alone has."""
    p: float
    """Probability of as much mutual information if the two had nothing to do with each other."""
    points: int


def correlate(
    levels: Sequence[float], values: Sequence[float], *, ordered: bool, seed: int = 0, draws: int = 499
) -> FactorCorrelation:
    """Return rank correlation and mutual information of the levels of a factor and the values of all points."""
    import numpy as np

    x, y = np.asarray(levels, float), np.asarray(values, float)
    count = len(x)
    rho = low = high = None
    if ordered and count >= 4 and np.ptp(x) > 0 and np.ptp(y) > 0:
        rho = float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])
        # Fisher's transformation with the variance of Bonett and Wright (2000)
        half = 1.959964 * math.sqrt((1 + rho**2 / 2) / (count - 3))
        centre = math.atanh(max(-1 + 1e-12, min(1 - 1e-12, rho)))
        low, high = math.tanh(centre - half), math.tanh(centre + half)
    bins_x, bins_y = _bins(x, ordered=ordered), _bins(y, ordered=True)
    found = _information(bins_x, bins_y)
    generator = np.random.default_rng(seed)
    chance = np.array([_information(bins_x, generator.permutation(bins_y)) for _ in range(draws)])
    p = float((1 + (chance >= found - 1e-12).sum()) / (1 + draws))
    return FactorCorrelation(rho, low, high, max(0.0, found - float(chance.mean())), p, count)


def _ranks(values: Array) -> Array:
    """Return ranks; equal values share the mean of theirs."""
    import numpy as np

    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], float)


def _bins(values: Array, *, ordered: bool) -> NDArray[np.intp]:
    """Return the bin of each value: each level is one where there are few, else the bins hold about as many."""
    import numpy as np

    distinct, inverse = np.unique(values, return_inverse=True)
    if len(distinct) <= _BINS or not ordered:
        return np.asarray(inverse)
    edges = np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1])
    return np.asarray(np.searchsorted(edges, values, side="right"))


def _information(x: NDArray[np.intp], y: NDArray[np.intp]) -> float:
    import numpy as np

    table = np.zeros((x.max() + 1, y.max() + 1))
    np.add.at(table, (x, y), 1.0)
    table /= table.sum()
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    known = table > 0
    return float((table[known] * np.log2(table[known] / expected[known])).sum())


def _t(probability: float, freedom: int) -> float:
    from opmark.stats.interval import quantile

    return quantile(probability, freedom)


def _f(probability: float, above: int, below: int) -> float:
    """Return the quantile of the F distribution. SciPy takes a while to import."""
    from scipy.special import fdtri

    return float(fdtri(above, below, probability))
