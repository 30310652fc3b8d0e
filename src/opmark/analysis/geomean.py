"""The geometric mean over cases, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from opmark.analysis.judge import Judged
from opmark.schema.comparison import Geomean
from opmark.stats.interval import log_interval
from opmark.stats.verdict import ALPHA, Comparison, compare_groups, compare_pairs


def geomean(found: Sequence[Judged], *, paired: bool, looks: int = 1) -> Geomean | None:
    """Each process is made one number, its mean over the cases, and these are compared like those of one case: what
    hits a process hits all of its cases, so that these are not independent.

    Ratio and interval are of all cases, and of those processes that measured all of them: a session goes on with the
    cases that are not decided, and those processes say nothing of the rest. Where there is no second such process, the
    interval is that of the mean over the cases as they spread. What drifts from session to session is in neither.
    """
    if not found:
        return None
    a, b = _by_process([one.used.a for one in found]), _by_process([one.used.b for one in found])
    rounds = sorted(a.keys() & b.keys())
    if paired and len(rounds) > 1:
        return _of(compare_pairs([a[i] for i in rounds], [b[i] for i in rounds], looks=looks), len(found))
    if not paired and min(len(a), len(b)) > 1:
        return _of(compare_groups(list(a.values()), list(b.values())), len(found))
    logs = [math.log(one.found.ratio) for one in found]
    ratio = math.exp(fmean(logs))
    if len(found) > 1:
        spread = log_interval([math.exp(value) for value in logs], 1 - ALPHA)
        return Geomean(ratio, spread.low, spread.high, len(found))
    return Geomean(ratio, 0.0, math.inf, 1)


def _of(found: Comparison, cases: int) -> Geomean:
    return Geomean(found.ratio, found.low, found.high, cases)


def _by_process(cases: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean over all cases of each process that measured all of them."""
    everywhere = set(cases[0]).intersection(*cases[1:])
    return {i: math.exp(sum(math.log(case[i]) for case in cases) / len(cases)) for i in sorted(everywhere)}
