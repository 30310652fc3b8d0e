"""Intervals of accuracy, and whether two backends differ on the same samples: known values, and rates of error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from opmark.errors import UserError
from opmark.stats.accuracy import (
    MARGIN,
    PairedDifference,
    compare_scores,
    judge_difference,
    mcnemar_p,
    permutation_p,
    summarize_scores,
    tango_interval,
    wilson_interval,
)

RUNS = 400


def test_a_share_has_wilsons_interval() -> None:
    expected = stats.binomtest(38, 50).proportion_ci(method="wilson")
    assert wilson_interval(38 / 50, 50) == pytest.approx((expected.low, expected.high))
    found = summarize_scores("share", [1.0] * 38 + [0.0] * 12)
    assert (found.value, found.low, found.high) == pytest.approx((0.76, expected.low, expected.high))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_without_exceptions_is_not_certain(share: float) -> None:
    low, high = wilson_interval(share, 20)
    assert high - low == pytest.approx(0.161, abs=0.001)
    assert 0 <= low <= share <= high <= 1


def test_mcnemars_test_is_exact() -> None:
    assert mcnemar_p(5, 12) == pytest.approx(stats.binomtest(5, 17).pvalue)
    assert mcnemar_p(0, 0) == mcnemar_p(3, 3) == 1.0
    assert mcnemar_p(400, 600) == pytest.approx(stats.binomtest(400, 1000).pvalue)


@pytest.mark.parametrize(("gained", "lost", "count"), [(1, 12, 50), (5, 12, 1000), (30, 3, 40)])
def test_tangos_interval_ends_where_the_score_is_that_of_95_percent(gained: int, lost: int, count: int) -> None:
    """At each end, the shares that make the data most likely are found by search, and not by the formula."""
    for end in tango_interval(gained, lost, count):

        def unlikely(share: float, end: float = end) -> float:
            both = max(1 - 2 * share - end, 1e-300)
            return -gained * math.log(share + end) - lost * math.log(share) - (count - gained - lost) * math.log(both)

        found = optimize.minimize_scalar(unlikely, bounds=(max(0, -end) + 1e-12, (1 - end) / 2), method="bounded",
                                         options={"xatol": 1e-12})  # fmt: skip
        score = (gained - lost - count * end) / math.sqrt(count * (2 * found.x + end - end * end))
        assert abs(score) == pytest.approx(1.96, abs=2e-3)


def test_pairs_that_never_differ_have_an_interval() -> None:
    low, high = tango_interval(0, 0, 100)
    assert high == -low == pytest.approx(0.037, abs=1e-3)


def test_a_mean_has_students_interval() -> None:
    scores = np.random.default_rng(1).random(40)
    expected = stats.t.interval(0.95, 39, scores.mean(), stats.sem(scores))
    found = summarize_scores("score", list(scores))
    assert (found.low, found.high) == pytest.approx(expected)
    assert summarize_scores("loss", [2.0]).low is None
    assert summarize_scores("loss", [1.0, 2.0]).better == "lower"


def test_a_perplexity_is_the_exponential_of_the_mean_loss() -> None:
    losses = [1.0, 2.0, 3.0, 2.0]
    loss, found = summarize_scores("loss", losses), summarize_scores("perplexity", losses)
    assert found.value == pytest.approx(math.exp(2))
    assert loss.low is not None
    assert found.low == pytest.approx(math.exp(loss.low))


def test_an_area_counts_pairs_and_half_of_ties() -> None:
    assert summarize_scores("auc", [0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).value == 0.75
    assert summarize_scores("auc", [0.5] * 6, [0, 1, 0, 1, 1, 0]).value == 0.5
    perfect = summarize_scores("auc", [0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])
    assert perfect.value == 1
    assert perfect.low is not None
    assert perfect.low < 0.5  # four samples prove little


def test_an_area_has_delongs_interval() -> None:
    """The variance, from its definition over all pairs."""
    generator = np.random.default_rng(2)
    labels = generator.random(120) < 0.3
    scores = np.round(generator.normal(size=120) + labels, 1)
    ones, zeros = scores[labels], scores[~labels]
    pairs = (ones[:, None] > zeros) + 0.5 * (ones[:, None] == zeros)
    variance = pairs.mean(1).var(ddof=1) / len(ones) + pairs.mean(0).var(ddof=1) / len(zeros)
    found = summarize_scores("auc", scores, labels)
    assert found.value == pytest.approx(pairs.mean())
    assert found.high == pytest.approx(pairs.mean() + 1.959964 * math.sqrt(variance))


def test_an_area_needs_both_labels() -> None:
    with pytest.raises(UserError, match="all 3 samples have label 1"):
        summarize_scores("auc", [0.1, 0.2, 0.3], [1, 1, 1])


def test_few_differences_get_all_their_signs() -> None:
    assert permutation_p(np.array([0.5, 0.5, 0.5, 0.0, 0.0])) == pytest.approx(2 / 8)
    assert permutation_p(np.zeros(9)) == 1.0
    many = np.random.default_rng(3).normal(0.05, 1, 5000)
    assert permutation_p(many) == pytest.approx(stats.ttest_1samp(many, 0).pvalue)
    some = many[:100]
    assert permutation_p(some) == pytest.approx(stats.ttest_1samp(some, 0).pvalue, abs=0.02)


@pytest.mark.parametrize(
    ("low", "high", "p", "better", "verdict"),
    [
        (-0.004, 0.003, 0.8, "higher", "same"),
        (-0.004, -0.001, 0.001, "higher", "same"),  # a difference that nobody minds
        (-0.02, -0.003, 0.01, "higher", "worse"),
        (-0.02, -0.003, 0.01, "lower", "better"),
        (0.003, 0.02, 0.01, "higher", "better"),
        (-0.02, 0.01, 0.4, "higher", "undecided"),
    ],
)
def test_verdicts(low: float, high: float, p: float, better: str, verdict: str) -> None:
    found = PairedDifference((low + high) / 2, low, high, p)
    assert judge_difference(found, 1000, better, MARGIN).verdict == verdict


def test_an_undecided_difference_says_how_many_samples_decide() -> None:
    generator = np.random.default_rng(4)

    def scores(count: int) -> tuple[list[float], list[float]]:
        theirs = _right(generator, count, 0.76)
        return list(_change(generator, theirs, 0.01, 0.01)), list(theirs)

    ours, theirs = scores(1000)
    judged = judge_difference(compare_scores("share", ours, theirs), 1000, "higher")
    assert judged.verdict == "undecided"
    assert judged.needed is not None
    decided = [
        judge_difference(compare_scores("share", *scores(2 * judged.needed)), 2 * judged.needed, "higher").verdict
        for _ in range(20)
    ]
    assert decided.count("undecided") <= 5


def test_samples_that_never_differ_are_the_same_only_once_there_are_enough() -> None:
    few = judge_difference(compare_scores("share", [1.0] * 40, [1.0] * 40), 40, "higher")
    assert few.verdict == "undecided"
    assert few.needed is not None
    assert 700 < few.needed < 900
    enough = few.needed
    for kind in ("share", "score"):
        found = compare_scores(kind, [1.0] * enough, [1.0] * enough)  # type: ignore[arg-type]
        assert judge_difference(found, enough, "higher").verdict == "same"


def _right(generator: np.random.Generator, count: int, share: float) -> np.ndarray:
    return (generator.random(count) < share).astype(float)


def _change(generator: np.random.Generator, theirs: np.ndarray, gained: float, lost: float) -> np.ndarray:
    """Flip wrong samples to right with one probability (of all samples), and right ones to wrong with another."""
    share = theirs.mean()
    flips = np.where(theirs > 0.5, generator.random(len(theirs)) < lost / share,
                     generator.random(len(theirs)) < gained / (1 - share))  # fmt: skip
    return np.where(flips, 1 - theirs, theirs)


def test_no_drop_is_called_worse_in_at_most_one_of_twenty() -> None:
    generator = np.random.default_rng(5)
    worse = same = 0
    for _ in range(RUNS):
        theirs = _right(generator, 10_000, 0.76)
        found = compare_scores("share", _change(generator, theirs, 0.01, 0.01), theirs)
        judged = judge_difference(found, 10_000, "higher").verdict
        worse += judged == "worse"
        same += judged == "same"
    assert worse <= 0.05 * RUNS
    assert same > 0.5 * RUNS


def test_a_drop_of_half_a_point_is_told_from_chance() -> None:
    generator = np.random.default_rng(6)
    judged = []
    for _ in range(RUNS):
        theirs = _right(generator, 20_000, 0.76)
        found = compare_scores("share", _change(generator, theirs, 0.005, 0.010), theirs)
        judged.append(judge_difference(found, 20_000, "higher").verdict)
    assert judged.count("worse") >= 0.95 * RUNS
    assert judged.count("better") == 0


@pytest.mark.parametrize("kind", ["share", "score", "loss", "perplexity", "auc"])
def test_intervals_cover_the_truth(kind: str) -> None:
    """Of a candidate that is as good as the reference, 95 % of the intervals hold 0, and few p-values are small."""
    generator = np.random.default_rng(7)
    outside = small = 0
    for _ in range(RUNS):
        labels = _right(generator, 600, 0.3)
        if kind == "share":
            theirs = _right(generator, 600, 0.8)
            ours = _change(generator, theirs, 0.03, 0.03)
        elif kind == "score":
            theirs = np.clip(generator.normal(0.7, 0.3, 600), 0, 1)
            ours = np.where(generator.random(600) < 0.1, generator.permutation(theirs), theirs)
        elif kind == "auc":
            true = generator.normal(size=600) + labels
            ours, theirs = (true + generator.normal(0, 0.5, 600) for _ in range(2))
        else:
            true = generator.exponential(2, 600)
            ours, theirs = (true + generator.normal(0, 0.1, 600) for _ in range(2))
        found = compare_scores(kind, ours, theirs, labels)  # type: ignore[arg-type,arg-type]
        outside += not found.low <= 0 <= found.high
        small += found.p < 0.05
    assert outside <= 0.08 * RUNS
    assert small <= 0.08 * RUNS


def test_a_worse_ranking_is_found_by_its_area() -> None:
    generator = np.random.default_rng(8)
    labels = _right(generator, 20_000, 0.25)
    theirs = generator.normal(size=20_000) + labels
    ours = theirs + generator.normal(0, 0.4, 20_000)
    found = compare_scores("auc", ours, theirs, labels)
    assert found.high < 0
    assert judge_difference(found, 20_000, "higher").verdict == "worse"


def test_a_perplexity_differs_by_a_ratio() -> None:
    losses = np.random.default_rng(9).exponential(3, 500)
    found = compare_scores("perplexity", losses + 0.02, losses)
    assert found.value == pytest.approx(math.exp(0.02) - 1)
    assert judge_difference(found, 500, "lower").verdict == "worse"


def test_other_samples_are_a_defect() -> None:
    with pytest.raises(ValueError, match="the same samples"):
        compare_scores("share", [1.0], [1.0, 0.0])
