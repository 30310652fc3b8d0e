"""The Mann-Whitney rank-sum test. For comparison only: it gives false alarms if samples are not independent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist


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
