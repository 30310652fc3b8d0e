"""Is B faster or slower than A? From paired medians of processes, with a known rate of false alarms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from opmark.schema.comparison import Verdict
from opmark.stats.interval import t_quantile

ALPHA = 0.01
MARGIN = 0.01
"""Differences up to this are called the same, and none below it is called one."""


class Comparison(NamedTuple):
    verdict: Verdict
    ratio: float
    """Of B over A: geometric mean over the pairs."""
    low: float
    high: float
    """Ends of its interval, 1 - alpha."""


def compare_pairs(
    a: Sequence[float], b: Sequence[float], floor: float = 0.0, alpha: float = ALPHA, margin: float = MARGIN
) -> Comparison:
    """`a[i]` and `b[i]` were measured next to each other, each in a process of its own.

    A difference is called when a paired t-test on the logarithms says so and it is larger than the margin and than
    twice the noise floor; `same` when the 90 % interval lies inside the margin.
    """
    logs = [math.log(later / earlier) for earlier, later in zip(a, b, strict=True)]
    centre = sum(logs) / len(logs)
    if len(logs) < 2:
        return Comparison("undecided", math.exp(centre), 0.0, math.inf)
    error = math.sqrt(sum((value - centre) ** 2 for value in logs) / (len(logs) - 1) / len(logs))
    half = t_quantile(1 - alpha / 2, len(logs) - 1) * error
    least = math.log1p(max(margin, 2 * floor))
    verdict: Verdict = "undecided"
    if abs(centre) > half and abs(centre) >= least:
        verdict = "slower" if centre > 0 else "faster"
    elif abs(centre) + t_quantile(0.95, len(logs) - 1) * error <= math.log1p(margin):
        verdict = "same"
    return Comparison(verdict, math.exp(centre), math.exp(centre - half), math.exp(centre + half))
