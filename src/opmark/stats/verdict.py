"""Is B faster or slower than A? From medians of processes, with a known rate of false alarms.

The unit is the process: two processes that run the same code differ by more than their samples tell. Values are
positive; a ratio is that of B over A, so above 1 is slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from opmark.schema.comparison import Verdict
from opmark.stats import student
from opmark.stats.factors import exp

ALPHA = 0.01
MARGIN = 0.01
"""Differences up to this are called the same, and none below it is called one."""
DRIFT = 0.02
"""How far apart two sessions of the same code are where the clock is free to move."""
SHARE = 0.05
"""Share of false ones among the verdicts over many cases."""
STAGES = (5, 10, 20)
"""Processes a side at which a live comparison looks whether it is decided."""
FEWEST = 4
"""Processes a side whose own spread is trusted. Where one process of five runs in a slower state, two or three of them
are too often all in the other one, and look quiet."""

# Of an interval that has to lie inside the margin: each of its ends errs in one case of twenty.
_SAME = 0.9
# Share of the margin that a standard error is at least: values that are all alike tell of a coarse clock.
_FINEST = 0.1
# A noise floor stands for the spread where there are few processes; it comes from about ten of them.
_FLOOR_FREEDOM = 9


class Comparison(NamedTuple):
    verdict: Verdict
    ratio: float
    """Of B over A: geometric mean over the processes."""
    low: float
    high: float
    """Ends of its interval, 1 - alpha."""
    p: float
    """How often identical code (and where two sessions are compared, code that drifted) differs by as much."""


class _Estimate(NamedTuple):
    """Of the logarithm of the ratio."""

    centre: float
    error: float
    freedom: float

    def half(self, confidence: float) -> float:
        """Half the width of its interval."""
        return student.quantile((1 + confidence) / 2, self.freedom) * self.error

    def p(self, drift: float) -> float:
        """Two-sided, of a true difference of at most `drift`; below alpha where the interval lies beyond it."""
        beyond = abs(self.centre) - drift
        if beyond <= 0:
            return 1.0
        return 2 * student.tail(beyond / self.error, self.freedom) if self.error > 0 else 0.0


def compare_pairs(
    a: Sequence[float],
    b: Sequence[float],
    floor: float = 0.0,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    looks: int = 1,
    tick: float = 0.0,
) -> Comparison:
    """`a[i]` and `b[i]` were measured next to each other, each in a process of its own.

    A difference is called when a paired t-test on the logarithms says so and it is larger than the margin and than
    twice the noise floor; `same` when the 90 % interval lies inside the margin. Fewer than FEWEST pairs decide nothing.
    `looks`: what may be wrong is shared out among so many of them, in all that is said here. `tick`: relative, how
    coarse the clock is; it rounds all processes of a side alike.
    """
    logs = [math.log(later / earlier) for earlier, later in zip(a, b, strict=True)]
    centre, variance = _moments(logs)
    if variance is None:
        return _unknown(centre)
    found = _Estimate(centre, max(math.sqrt(variance / len(logs)), _finest(margin)), len(logs) - 1)
    judged = _judge(found, _Limits(alpha, max(margin, 2 * floor), margin, looks=looks, tick=tick))
    return judged if len(logs) >= FEWEST else judged._replace(verdict="undecided", p=1.0)


def compare_groups(
    a: Sequence[float],
    b: Sequence[float],
    floor: float = 0.0,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    drift: float = DRIFT,
    tick: float = 0.0,
) -> Comparison:
    """Two sessions, one after the other: Welch's test on the logarithms, of more than what drifts between them.

    A difference is called when the whole interval lies beyond the drift and its centre beyond the margin and twice the
    floor; `same` when no difference beyond `alike` can hide: a drift hides one as easily as it feigns one.
    Where nothing drifts (clocks locked, or times in cycles), `drift` is 0 and the rules are those of pairs.
    Fewer than FEWEST processes have no spread to rely on: the floor stands for it, and without one nothing is decided.
    """
    sides = [_moments([math.log(value) for value in values]) for values in (a, b)]
    centre = sides[1][0] - sides[0][0]
    shares: list[tuple[float, float]] = []  # of the variance of the difference, with degrees of freedom
    for values, (_, variance) in zip((a, b), sides, strict=True):
        if len(values) < FEWEST and floor > 0:
            shares.append((max(variance or 0.0, math.log1p(floor) ** 2) / len(values), _FLOOR_FREEDOM))
        elif variance is not None:
            shares.append((variance / len(values), len(values) - 1))
        else:
            return _unknown(centre)
    total = sum(share for share, _ in shares)
    # A share of the total squared, not of the shares: those of tiny spreads would vanish.
    freedom = 1 / sum((share / total) ** 2 / own for share, own in shares) if total > 0 else shares[0][1]
    found = _Estimate(centre, max(math.sqrt(total), _finest(margin)), freedom)
    judged = _judge(found, _Limits(alpha, max(margin, drift, 2 * floor), margin, drift, tick=tick))
    sure = floor > 0 or min(len(a), len(b)) >= FEWEST
    return judged if sure else judged._replace(verdict="undecided", p=1.0)


def alike(margin: float, drift: float) -> float:
    """The largest difference that may be called the same: where sessions drift, what a drift may hide, and as much of
    a margin for what is seen."""
    return max(margin, 2 * drift)


def over_cases(found: Sequence[Comparison], q: float = SHARE) -> list[Comparison]:
    """Benjamini-Hochberg over the cases of a comparison: among what remains called, a share of `q` is false at most.

    What does not survive becomes undecided; nothing is ever added.
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
    """Nothing below it is called a difference."""
    margin: float
    drift: float = 0.0
    looks: int = 1
    tick: float = 0.0


def _judge(found: _Estimate, limits: _Limits) -> Comparison:
    centre, half = found.centre, found.half(1 - limits.alpha / limits.looks)
    drift = math.log1p(limits.drift)
    p = min(1.0, limits.looks * found.p(drift + math.log1p(limits.tick)))
    seen = half if limits.drift > 0 else found.half(1 - (1 - _SAME) / limits.looks)
    verdict: Verdict = "undecided"
    if p < limits.alpha and abs(centre) >= math.log1p(limits.least):
        verdict = "slower" if centre > 0 else "faster"
    elif abs(centre) + seen + drift <= math.log1p(alike(limits.margin, limits.drift)):
        verdict = "same"
    return Comparison(verdict, exp(centre), exp(centre - half), exp(centre + half), p)


def _finest(margin: float) -> float:
    return _FINEST * math.log1p(min(margin, MARGIN))


def _unknown(centre: float) -> Comparison:
    return Comparison("undecided", exp(centre), 0.0, math.inf, 1.0)


def _moments(logs: Sequence[float]) -> tuple[float, float | None]:
    """Mean and variance; of one value there is no variance."""
    centre = fmean(logs)
    return centre, sum((value - centre) ** 2 for value in logs) / (len(logs) - 1) if len(logs) > 1 else None
