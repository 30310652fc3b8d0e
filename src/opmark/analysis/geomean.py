"""The geometric mean over cases, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from opmark.analysis.judge import Judged
from opmark.schema.comparison import Geomean
from opmark.stats.interval import log_interval
from opmark.stats.verdict import ALPHA, compare_groups, compare_pairs


def geomean(found: Sequence[Judged], *, paired: bool) -> Geomean | None:
    """Each process is made one number, its mean over the cases, and these are compared like those of one case: what
    hits a process hits all of its cases, so that these are not independent.

    Where there is only one process, the interval is that of the mean over the cases as they spread. What drifts from
    session to session is in neither.
    """
    if not found:
        return None
    logs = [math.log(one.found.ratio) for one in found]
    ratio = math.exp(fmean(logs))
    a, b = _by_process([one.used.a for one in found]), _by_process([one.used.b for one in found])
    rounds = sorted(a.keys() & b.keys())
    if paired and len(rounds) > 1:
        both = compare_pairs([a[i] for i in rounds], [b[i] for i in rounds])
        return Geomean(ratio, both.low, both.high, len(found))
    if not paired and min(len(a), len(b)) > 1:
        groups = compare_groups(list(a.values()), list(b.values()))
        return Geomean(ratio, groups.low, groups.high, len(found))
    if len(found) > 1:
        spread = log_interval([math.exp(value) for value in logs], 1 - ALPHA)
        return Geomean(ratio, spread.low, spread.high, len(found))
    return Geomean(ratio, 0.0, math.inf, 1)


def _by_process(cases: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean over all cases of each process that measured all of them."""
    everywhere = set(cases[0]).intersection(*cases[1:])
    return {i: math.exp(sum(math.log(case[i]) for case in cases) / len(cases)) for i in sorted(everywhere)}
