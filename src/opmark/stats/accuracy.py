"""Accuracy on labelled data: intervals of figures, and what two backends differ by on the same samples.

What a figure is made of (`MetricKind`) decides how: shares by Wilson's interval and McNemar's exact test with Tango's
interval, means by Student's t and a permutation of signs, areas under the curve by DeLong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from opmark.errors import UserError
from opmark.schema.evaluation import Metric, MetricKind
from opmark.stats.interval import quantile, tail
from opmark.stats.summary import exp as _exp

MARGIN = 0.005
"""Differences up to this are called the same."""
SIGNIFICANCE = 0.05
_CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
_SIGN_DRAWS = 20_000
_EXACT_SIGNS = 14
"""Number of differences up to which every combination of signs is tried."""
_MOST_SIGNS = 100
"""Number of differences from which on the permutation of signs and Student's t agree."""
_DRAWN_AT_ONCE = 2000
_BISECTIONS = 60

AccuracyVerdict = Literal["worse", "better", "same", "undecided"]


class PairedDifference(NamedTuple):
    """What a candidate's figure differs by from the reference's on the same samples."""

    value: float
    """Candidate minus reference; of a perplexity, the ratio minus 1."""
    low: float
    high: float
    p: float
    """Probability of such a difference, or a larger one, where there is none."""


class AccuracyJudgement(NamedTuple):
    verdict: AccuracyVerdict
    needed: int | None
    """About how many samples would decide; None where it is decided, or no number would."""


# Figures.


def summarize_scores(
    kind: MetricKind, scores: Sequence[float], labels: Sequence[float] = (), *, better: str = ""
) -> Metric:
    """Return the figure over the scores of all samples with its 95 % interval. `labels` (0 or 1) are for `auc`."""
    import numpy as np

    if not len(scores):
        raise ValueError("a figure needs at least one sample")
    values = np.asarray(scores, float)
    better = better or ("lower" if kind in ("loss", "perplexity") else "higher")
    mean = float(values.mean())
    if kind == "share":
        return Metric(mean, *wilson_interval(mean, len(values)), better, kind)
    if kind == "auc":
        return Metric(*_auc_with_interval(values, np.asarray(labels)), better, kind)
    half = _half_width(values)
    if kind == "score":
        if half == 0 or math.isinf(half):  # all samples are alike: as uncertain as a share
            return Metric(mean, *wilson_interval(mean, len(values)), better, kind)
        return Metric(mean, max(0.0, mean - half), min(1.0, mean + half), better, kind)
    scale: Callable[[float], float] = _exp if kind == "perplexity" else float
    if math.isinf(half):
        return Metric(scale(mean), None, None, better, kind)
    return Metric(scale(mean), scale(mean - half), scale(mean + half), better, kind)


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of that many samples, which is right near 0 and 1 too."""
    square = _Z * _Z
    centre = (share + square / (2 * count)) / (1 + square / count)
    half = _Z / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def _half_width(values: Any) -> float:
    """Return half the width of the mean's interval by Student's t; one sample alone says nothing of it."""
    if len(values) < 2:
        return math.inf
    return quantile((1 + _CONFIDENCE) / 2, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))


def _auc_with_interval(scores: Any, labels: Any) -> tuple[float, float, float]:
    area, of_ones, of_zeros = _placements(scores, labels)
    deviation = math.sqrt(_variance(of_ones) + _variance(of_zeros))
    if deviation == 0:  # the classes are told apart without an error: as uncertain as a share of the smaller class
        return area, *wilson_interval(area, min(len(of_ones), len(of_zeros)))
    return area, max(0.0, area - _Z * deviation), min(1.0, area + _Z * deviation)


def _placements(scores: Any, labels: Any) -> tuple[float, Any, Any]:
    """Return the area under the curve, and for each sample with label 1 (0) the share of those with label 0 (1) that it
    is ranked right against; ties count half. Time is that of sorting."""
    import numpy as np

    ones = labels > 0.5
    count_ones, count_zeros = int(ones.sum()), int((~ones).sum())
    if not count_ones or not count_zeros:
        raise UserError(
            f"an AUC needs both labels, and all {len(labels)} samples have label {int(count_ones > 0)}",
            "are these the right labels? A larger --data-percent may have both",
        )
    ranks = _middle_ranks(scores)
    of_ones = (ranks[ones] - _middle_ranks(scores[ones])) / count_zeros
    of_zeros = 1 - (ranks[~ones] - _middle_ranks(scores[~ones])) / count_ones
    return float(np.mean(of_ones)), of_ones, of_zeros


def _middle_ranks(values: Any) -> Any:
    """Return the rank of each value, counted from 1; equal values share the middle of their ranks."""
    import numpy as np

    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _variance(placements: Any) -> float:
    """Return the variance of the mean of placements."""
    return float(placements.var(ddof=1)) / len(placements) if len(placements) > 1 else 0.0


# Differences.


def compare_scores(
    kind: MetricKind, candidate: Sequence[float], reference: Sequence[float], labels: Sequence[float] = ()
) -> PairedDifference:
    """Compare the scores of two backends, sample by sample."""
    import numpy as np

    if len(candidate) != len(reference) or not len(candidate):
        raise ValueError(f"expected the same samples twice, got {len(candidate)} and {len(reference)} scores")
    ours, theirs = np.asarray(candidate, float), np.asarray(reference, float)
    if kind == "share":
        gained = int(((ours > 0.5) & (theirs <= 0.5)).sum())
        lost = int(((ours <= 0.5) & (theirs > 0.5)).sum())
        low, high = tango_interval(gained, lost, len(ours))
        return PairedDifference((gained - lost) / len(ours), low, high, mcnemar_p(gained, lost))
    if kind == "auc":
        return _compare_areas(ours, theirs, np.asarray(labels))
    differences = ours - theirs
    value, half, p = float(differences.mean()), _half_width(differences), permutation_p(differences)
    if kind == "score":  # scores from 0 to 1: what was never seen may still happen, as with shares
        half = max(half, _unseen(len(differences)))
    if kind == "perplexity":
        return PairedDifference(_exp(value) - 1, _exp(value - half) - 1, _exp(value + half) - 1, p)
    return PairedDifference(value, value - half, value + half, p)


def mcnemar_p(gained: int, lost: int) -> float:
    """Return the p-value of McNemar's exact test: samples on which the two differ fall to both sides alike."""
    from scipy.special import bdtr

    differing = gained + lost
    return min(1.0, 2 * float(bdtr(min(gained, lost), differing, 0.5))) if differing else 1.0


def tango_interval(gained: int, lost: int, count: int) -> tuple[float, float]:
    """Return the 95 % score interval of a difference of paired shares (Tango 1998). It has a width also where the two
    never differ."""

    def statistic(difference: float) -> float:
        a = 2 * count
        b = -gained - lost + (2 * count - gained + lost) * difference
        c = -lost * difference * (1 - difference)
        share = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
        variance = count * (2 * share + difference * (1 - difference))
        excess = gained - lost - count * difference
        return math.copysign(math.inf, excess) if variance <= 0 and excess else excess / math.sqrt(variance or 1.0)

    def solve(target: float, low: float, high: float) -> float:
        """Return where the statistic, which falls with the difference, reaches the target."""
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if statistic(middle) > target else (low, middle)
        return (low + high) / 2

    centre = (gained - lost) / count
    return solve(_Z, -1.0, centre), solve(-_Z, centre, 1.0)


def permutation_p(differences: Any) -> float:
    """Return the p-value of paired differences under random signs, or by Student's t where there are many."""
    import numpy as np

    changed = differences[differences != 0]
    if not len(changed):
        return 1.0
    if len(changed) > _MOST_SIGNS:
        error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
        # Equal differences everywhere have no deviation, and no chance makes them.
        return 2 * tail(abs(float(differences.mean())) / error, len(differences) - 1) if error else 0.0
    found = abs(changed.sum()) * (1 - 1e-12)
    if len(changed) <= _EXACT_SIGNS:
        signs = 1 - 2 * ((np.arange(2 ** len(changed))[:, None] >> np.arange(len(changed))) & 1)
        return float((np.abs(signs @ changed) >= found).mean())
    generator = np.random.default_rng(0)
    as_large = 0
    for _ in range(_SIGN_DRAWS // _DRAWN_AT_ONCE):
        signs = generator.integers(0, 2, (_DRAWN_AT_ONCE, len(changed)), np.int8) * 2 - 1
        as_large += int((np.abs(signs @ changed) >= found).sum())
    return (as_large + 1) / (_SIGN_DRAWS + 1)


def _compare_areas(ours: Any, theirs: Any, labels: Any) -> PairedDifference:
    """Compare two areas under the curve on the same samples (DeLong 1988)."""
    area, of_ones, of_zeros = _placements(ours, labels)
    area_there, of_ones_there, of_zeros_there = _placements(theirs, labels)
    value = area - area_there
    deviation = math.sqrt(_variance(of_ones - of_ones_there) + _variance(of_zeros - of_zeros_there))
    p = 2 * (1 - NormalDist().cdf(abs(value) / deviation)) if deviation else float(value == 0)
    half = max(_Z * deviation, _unseen(len(labels)))  # as with scores
    return PairedDifference(value, value - half, value + half, p)


def _unseen(count: int) -> float:
    """Return how large a share may be that was never seen in so many samples, as Tango's interval has it."""
    return _Z * _Z / (count + _Z * _Z)


def judge_difference(found: PairedDifference, samples: int, better: str, margin: float = MARGIN) -> AccuracyJudgement:
    """Say whether the candidate is worse, better, or the same within the margin."""
    if -margin <= found.low and found.high <= margin:
        return AccuracyJudgement("same", None)
    if found.p < SIGNIFICANCE:
        return AccuracyJudgement("better" if (found.value > 0) == (better == "higher") else "worse", None)
    # An interval of half the margin to each side leaves 0 or lies within the margin, wherever it is. A difference that
    # is larger than the margin needs no more than half of itself.
    target = max(margin, abs(found.value)) / 2
    half = (found.high - found.low) / 2
    if target <= 0 or math.isinf(half):
        return AccuracyJudgement("undecided", None)
    if margin and math.isclose(half, _unseen(samples), rel_tol=1e-3):  # the two never differed
        needed = max(_Z * _Z * (1 / margin - 1), 1.1 * samples)
    else:
        needed = samples * max((half / target) ** 2, 1.1)
    digits = max(0, math.floor(math.log10(needed)) - 1)
    return AccuracyJudgement("undecided", math.ceil(needed / 10**digits) * 10**digits)
