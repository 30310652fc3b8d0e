"""Decide whether B is faster or slower than A from medians of processes, with a known rate of false alarms.

The unit is the process: two processes that run the same code differ by more than their samples show. Values are
positive; a ratio is B over A, so above 1 is slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean
from typing import NamedTuple

from opmark.schema.comparison import Verdict
from opmark.stats import interval
from opmark.stats.summary import exp

ALPHA = 0.01
MARGIN = 0.01
"""Relative differences up to this count as the same; no smaller one is called faster or slower."""
DRIFT = 0.02
"""How far sessions of the same code spread (standard deviation) where nothing else is known of a machine."""
SHARE = 0.05
"""Allowed share of false verdicts over many cases (false discovery rate)."""
STAGES = (5, 10, 20)
"""Processes per side after which a live comparison checks whether it is decided."""
FEWEST = 4
"""Least number of processes per side whose spread is trusted. If one process of five runs in a slower state, two or
three processes too often miss it and seem to have no spread."""

# Confidence of the interval that has to lie inside the margin: each end errs in one case of twenty.
_SAME_CONFIDENCE = 0.9
# Least standard error as a share of the margin: equal values only mean that the clock is coarse.
_LEAST_ERROR = 0.1
# Degrees of freedom of a noise floor, which replaces the spread of few processes; about ten processes made it.
_FLOOR_FREEDOM = 9


class Spread(NamedTuple):
    """How far sessions of the same code spread on a machine."""

    deviation: float
    """Relative standard deviation."""
    freedom: float
    """Degrees of freedom: how many sessions it is known from."""


# What is assumed counts as much as six stored sessions: a few of these may all have missed a state of the machine.
UNKNOWN_SESSIONS = Spread(DRIFT, 6)
"""What is assumed of the sessions of a machine of which nothing is stored."""
CLOCKED_SESSIONS = Spread(0.005, 6)
"""The same where cycles are compared too, so that the clock is no part of it."""


class Comparison(NamedTuple):
    verdict: Verdict
    ratio: float
    """B over A: geometric mean over the processes."""
    low: float
    high: float
    """Ends of its interval of confidence 1 - alpha."""
    p: float
    """Probability that identical code (with a given drift: code that drifted) differs by as much."""


class _Estimate(NamedTuple):
    """Estimate of the logarithm of the ratio."""

    centre: float
    error: float
    freedom: float

    def half(self, confidence: float) -> float:
        """Return half the width of the interval."""
        return interval.quantile((1 + confidence) / 2, self.freedom) * self.error

    def p(self, drift: float) -> float:
        """Return the two-sided p-value of the hypothesis that the true difference is at most `drift`."""
        beyond = abs(self.centre) - drift
        if beyond <= 0:
            return 1.0
        return 2 * interval.tail(beyond / self.error, self.freedom) if self.error > 0 else 0.0


def compare_pairs(
    a: Sequence[float],
    b: Sequence[float],
    floor: float = 0.0,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    looks: int = 1,
    tick: float = 0.0,
) -> Comparison:
    """Compare pairs: `a[i]` and `b[i]` were measured one after the other, each in a process of its own.

    The verdict is `faster` or `slower` if a paired t-test on the logarithms is significant and the difference is larger
    than the margin and than twice the noise floor; it is `same` if the 90 % interval lies inside the margin. Fewer than
    FEWEST pairs decide nothing. `looks` is how often the comparison is evaluated while it goes on: the error rates are
    divided among them. `tick` is the relative resolution of the clock, which rounds all processes of a side alike.
    """
    logs = [math.log(later / earlier) for earlier, later in zip(a, b, strict=True)]
    centre, variance = _moments(logs)
    if variance is None:
        return _undecided(centre)
    found = _Estimate(centre, max(math.sqrt(variance / len(logs)), _least_error(margin)), len(logs) - 1)
    judged = _judge(found, _Limits(alpha, max(margin, 2 * floor), margin, looks=looks, tick=tick))
    return judged if len(logs) >= FEWEST else judged._replace(verdict="undecided", p=1.0)


def compare_groups(
    a: Sequence[float],
    b: Sequence[float],
    floor: float = 0.0,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    drift: float = 0.0,
    tick: float = 0.0,
    sessions: Spread | None = None,
) -> Comparison:
    """Compare two groups of processes by Welch's t-test on the logarithms.

    `sessions` says how far two sessions spread. That is a part of the standard error, as the spread of processes is, so
    that the interval is that of another two sessions. A `drift` is a bound instead: the whole interval has to lie
    beyond it. Processes of one session have neither.

    The verdict is `faster` or `slower` if the difference is significant and beyond the margin and twice the floor; it
    is `same` if no difference beyond `same_limit` can hide: drift hides a difference as easily as it feigns one. Fewer
    than FEWEST processes have no reliable spread: the floor replaces it, and without one nothing is decided."""
    sides = [_moments([math.log(value) for value in values]) for values in (a, b)]
    centre = sides[1][0] - sides[0][0]
    shares: list[tuple[float, float]] = []  # (share of the variance of the difference, degrees of freedom)
    by_floor: list[float] = []
    for values, (_, variance) in zip((a, b), sides, strict=True):
        if len(values) < FEWEST and floor > 0:
            by_floor.append(max(variance or 0.0, math.log1p(floor) ** 2) / len(values))
        elif variance is not None:
            shares.append((variance / len(values), len(values) - 1))
        else:
            return _undecided(centre)
    if by_floor:  # one estimate for both sides
        shares.append((sum(by_floor), _FLOOR_FREEDOM))
    if sessions:
        shares.append((2 * math.log1p(sessions.deviation) ** 2, sessions.freedom))
    total = sum(share for share, _ in shares)
    # Each share is divided before it is squared: squares of tiny variances would underflow.
    freedom = 1 / sum((share / total) ** 2 / own for share, own in shares) if total > 0 else shares[0][1]
    found = _Estimate(centre, max(math.sqrt(total), _least_error(margin)), freedom)
    alike = same_limit(margin, DRIFT if sessions else drift)
    judged = _judge(found, _Limits(alpha, max(margin, drift, 2 * floor), alike, drift, tick=tick))
    sure = floor > 0 or min(len(a), len(b)) >= FEWEST
    return judged if sure else judged._replace(verdict="undecided", p=1.0)


def same_limit(margin: float, drift: float) -> float:
    """Return the largest difference that may be called the same: the margin, or twice the drift where that is more,
    because a drift may hide as much as it shows."""
    return max(margin, 2 * drift)


def control_false_discoveries(found: Sequence[Comparison], q: float = SHARE) -> list[Comparison]:
    """Apply Benjamini and Hochberg's procedure over the cases: of the remaining verdicts, at most a share `q` is false.

    The other verdicts become `undecided`; none is ever added.
    """
    passed = 0.0
    for rank, p in enumerate(sorted(one.p for one in found), start=1):
        if p <= q * rank / len(found):
            passed = p
    return [
        one._replace(verdict="undecided") if one.verdict in ("faster", "slower") and one.p > passed else one
        for one in found
    ]


class _Limits(NamedTuple):
    alpha: float
    least: float
    """Least difference that may be called faster or slower."""
    alike: float
    """Largest difference that may be called the same."""
    drift: float = 0.0
    looks: int = 1
    tick: float = 0.0


def _judge(found: _Estimate, limits: _Limits) -> Comparison:
    centre, half = found.centre, found.half(1 - limits.alpha / limits.looks)
    drift = math.log1p(limits.drift)
    p = min(1.0, limits.looks * found.p(drift + math.log1p(limits.tick)))
    seen = half if limits.drift > 0 else found.half(1 - (1 - _SAME_CONFIDENCE) / limits.looks)
    verdict: Verdict = "undecided"
    if p < limits.alpha and abs(centre) >= math.log1p(limits.least):
        verdict = "slower" if centre > 0 else "faster"
    elif abs(centre) + seen + drift <= math.log1p(limits.alike):
        verdict = "same"
    return Comparison(verdict, exp(centre), exp(centre - half), exp(centre + half), p)


def _least_error(margin: float) -> float:
    return _LEAST_ERROR * math.log1p(min(margin, MARGIN))


def _undecided(centre: float) -> Comparison:
    return Comparison("undecided", exp(centre), 0.0, math.inf, 1.0)


def _moments(logs: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and variance; a single value has no variance."""
    centre = fmean(logs)
    return centre, sum((value - centre) ** 2 for value in logs) / (len(logs) - 1) if len(logs) > 1 else None


# The Mann-Whitney rank-sum test. For comparison only: it gives false alarms if samples are not independent.


def rank_sum_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p-value by the normal approximation, which needs large samples."""
    ordered = sorted([(value, 0) for value in a] + [(value, 1) for value in b])
    total, ties, i = 0.0, 0.0, 0
    while i < len(ordered):
        j = i
        while j < len(ordered) and ordered[j][0] == ordered[i][0]:
            j += 1
        mean_rank = (i + 1 + j) / 2
        total += mean_rank * sum(1 for _, side in ordered[i:j] if side == 0)
        ties += (j - i) ** 3 - (j - i)
        i = j
    n, m, both = len(a), len(b), len(a) + len(b)
    spread = math.sqrt(n * m / 12 * (both + 1 - ties / (both * (both - 1))))
    if spread == 0:
        return 1.0
    z = (total - n * (both + 1) / 2) / spread
    return 2 * (1 - NormalDist().cdf(abs(z)))
