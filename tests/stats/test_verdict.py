"""Verdicts: rarely wrong about identical code, rarely undecided about a difference."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.stats import gmean, ttest_ind, ttest_rel

from opmark.stats.verdict import (
    ALPHA,
    DRIFT,
    FEWEST,
    MARGIN,
    Comparison,
    compare_groups,
    compare_pairs,
    control_false_discoveries,
    same_limit,
)

pytestmark = pytest.mark.verdicts

TIMES = st.floats(1e-7, 1e-2)
SIDES = st.lists(st.floats(0.9, 1.1), min_size=1, max_size=8)
DRIFTS = st.sampled_from([0.0, DRIFT])
PAIRS = st.lists(st.tuples(TIMES, st.floats(0.9, 1.1)), min_size=2, max_size=12)
FLOORS = st.floats(0.0, 0.05)
OPPOSITE = {"faster": "slower", "slower": "faster", "same": "same", "undecided": "undecided"}


def split(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [time for time, _ in pairs], [time * factor for time, factor in pairs]


def abba(draw: random.Random, pairs: int, spread: float, effect: float = 0.0, drift: float = 0.0) -> Comparison:
    """Return process medians in the order ABBA ABBA ..., with random noise and a common drift."""
    a, b = [], []
    for process in range(2 * pairs):
        is_b = process % 4 in (1, 2)
        median = 1e-5 * (1 + effect * is_b) * math.exp(draw.gauss(0, spread) + drift * process)
        (b if is_b else a).append(median)
    return compare_pairs(a, b)


def shares(trials: int, **how: float) -> dict[str, float]:
    draw = random.Random(20300101)
    found = Counter(abba(draw, **how).verdict for _ in range(trials))  # type: ignore[arg-type]
    return {verdict: found[verdict] / trials for verdict in OPPOSITE}


# The rate of false alarms.


@pytest.mark.parametrize("spread", [0.005, 0.0075, 0.01])
@pytest.mark.parametrize("pairs", [5, 10])
def test_identical_processes_are_seldom_called_different(pairs: int, spread: float) -> None:
    found = shares(3000, pairs=pairs, spread=spread)
    assert found["faster"] + found["slower"] <= 2 * ALPHA


def test_what_drifts_meanwhile_is_no_difference() -> None:
    found = shares(1000, pairs=10, spread=0.002, drift=0.005)
    assert found["faster"] + found["slower"] <= 2 * ALPHA


@pytest.mark.parametrize(("pairs", "spread"), [(5, 0.005), (10, 0.01)])
def test_three_percent_are_found(pairs: int, spread: float) -> None:
    found = shares(1000, pairs=pairs, spread=spread, effect=0.03)
    assert found["slower"] >= 0.9
    assert found["faster"] == found["same"] == 0


def test_quiet_processes_of_the_same_are_called_the_same() -> None:
    assert shares(500, pairs=5, spread=0.002)["same"] >= 0.9


def test_noisy_processes_leave_it_undecided() -> None:
    assert shares(500, pairs=5, spread=0.05)["undecided"] >= 0.95


# The verdicts.


@given(PAIRS, FLOORS)
def test_swapping_the_two_turns_the_verdict_around(pairs: list[tuple[float, float]], floor: float) -> None:
    a, b = split(pairs)
    one, other = compare_pairs(a, b, floor), compare_pairs(b, a, floor)
    assert other.verdict == OPPOSITE[one.verdict]
    assert other.ratio * one.ratio == pytest.approx(1)
    assert other.low * one.high == pytest.approx(1)


@settings(suppress_health_check=[HealthCheck.filter_too_much], deadline=None)
@given(PAIRS, FLOORS)
def test_the_same_lies_inside_the_margin(pairs: list[tuple[float, float]], floor: float) -> None:
    """Most pairs differ too much for that, so their differences are reduced."""
    a, b = split([(time, factor ** (1 / 10)) for time, factor in pairs])
    found = compare_pairs(a, b, floor)
    assume(found.verdict == "same")
    assert abs(math.log(found.ratio)) <= math.log1p(MARGIN)


@settings(suppress_health_check=[HealthCheck.filter_too_much], deadline=None)
@given(PAIRS, FLOORS)
def test_a_difference_is_larger_than_the_margin_than_twice_the_floor_and_than_chance(
    pairs: list[tuple[float, float]], floor: float
) -> None:
    a, b = split([(time, 1.02 * factor ** (1 / 10)) for time, factor in pairs])
    found = compare_pairs(a, b, floor)
    assert found.low <= found.ratio <= found.high
    assume(found.verdict in ("faster", "slower"))
    assert abs(math.log(found.ratio)) >= math.log1p(max(MARGIN, 2 * floor)) - 1e-12
    assert not found.low <= 1 <= found.high
    assert found.verdict == ("slower" if found.ratio > 1 else "faster")


@given(PAIRS, FLOORS, st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(pairs: list[tuple[float, float]], floor: float, unit: float) -> None:
    a, b = split(pairs)
    ratio = compare_pairs([unit * x for x in a], [unit * x for x in b], floor).ratio
    assert ratio == pytest.approx(compare_pairs(a, b, floor).ratio)


def test_a_difference_below_the_margin_is_none_however_sure_it_is() -> None:
    found = compare_pairs([1.0] * 5, [1.005, 1.0051, 1.0049, 1.005, 1.005])
    assert found.low > 1
    assert found.verdict == "same"


def test_a_difference_that_this_machine_shows_of_itself_is_left_undecided() -> None:
    a, b = [1.0] * 5, [1.03, 1.031, 1.029, 1.03, 1.03]
    assert [compare_pairs(a, b, floor).verdict for floor in (0.0, 0.014, 0.016)] == ["slower", "slower", "undecided"]


def test_what_differs_from_pair_to_pair_together_is_compared_inside_the_pairs() -> None:
    a = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert compare_pairs(a, [0.95 * x * (1 + i / 1e4) for i, x in enumerate(a)]).verdict == "faster"


def test_one_pair_decides_nothing() -> None:
    assert compare_pairs([1.0], [2.0]) == Comparison("undecided", pytest.approx(2.0), 0.0, math.inf, 1.0)


def test_without_any_difference_between_pairs_the_interval_is_still_no_point() -> None:
    """The clock may be coarse."""
    found = compare_pairs([1.0] * 5, [1.0] * 5)
    assert (found.verdict, found.ratio, found.p) == ("same", 1.0, 1.0)
    assert found.high == pytest.approx(1 / found.low)
    assert 1.001 < found.high < 1.01


def test_a_few_pairs_decide_nothing() -> None:
    a, b = [1.0, 1.001, 0.999, 1.0], [1.5, 1.501, 1.499, 1.5]
    assert [compare_pairs(a[:n], b[:n]).verdict for n in (2, 3, 4)] == ["undecided", "undecided", "slower"]
    assert [compare_pairs(a[:n], b[:n]).p for n in (2, 3)] == [1.0, 1.0]


def test_looks_share_what_may_be_wrong_in_all_that_is_said() -> None:
    a, b = [1.0] * 5, [1.02, 1.021, 1.019, 1.02, 1.021]
    one, three = compare_pairs(a, b), compare_pairs(a, b, looks=3)
    assert three.p == pytest.approx(3 * one.p)
    assert three.low < one.low < one.high < three.high
    near = [1.005, 1.0, 1.01, 0.9975, 1.0075]
    assert [compare_pairs(a, near, looks=looks).verdict for looks in (1, 3)] == ["same", "undecided"]


def test_a_difference_of_a_tick_is_none() -> None:
    a, b = [1.0] * 5, [1.02] * 5
    assert [compare_pairs(a, b, tick=tick).verdict for tick in (0.0, 0.02)] == ["slower", "undecided"]
    found = [compare_groups(a, b, drift=0.0, tick=tick).verdict for tick in (0.0, 0.02)]
    assert found == ["slower", "undecided"]


def test_a_value_without_its_partner_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare_pairs([1.0, 1.0], [1.0])


def test_the_interval_is_that_of_student_on_the_logarithms() -> None:
    logs = [0.01, 0.03, 0.02]
    found = compare_pairs([1.0] * 3, [math.exp(x) for x in logs])
    half = 9.924843 * 0.01 / math.sqrt(3)  # the quantile of 99.5 % with two degrees of freedom
    assert math.log(found.ratio) == pytest.approx(0.02)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((0.02 - half, 0.02 + half), rel=1e-5)


@given(PAIRS, FLOORS, st.randoms())
def test_the_order_of_the_pairs_does_not_matter(
    pairs: list[tuple[float, float]], floor: float, draw: random.Random
) -> None:
    mixed = draw.sample(pairs, len(pairs))
    assert agree(compare_pairs(*split(pairs), floor), compare_pairs(*split(mixed), floor))


def agree(one: Comparison, other: Comparison) -> bool:
    return one.verdict == other.verdict and one[1:] == pytest.approx(other[1:], rel=1e-6, abs=1e-12)


@given(PAIRS, FLOORS)
def test_p_is_below_alpha_where_the_interval_leaves_one_out(pairs: list[tuple[float, float]], floor: float) -> None:
    found = compare_pairs(*split(pairs), floor)
    assert 0 <= found.p <= 1
    assume(len(pairs) >= FEWEST)
    assume(abs(found.p - ALPHA) > 1e-9)
    assert (found.p < ALPHA) == (not found.low <= 1 <= found.high)


def test_p_is_that_of_student() -> None:
    a, b = [1.00, 2.02, 3.01, 4.0], [1.03, 2.05, 3.16, 4.1]
    assert compare_pairs(a, b).p == pytest.approx(ttest_rel(np.log(b), np.log(a)).pvalue)


# Two sessions.


@given(SIDES, SIDES, FLOORS, DRIFTS)
def test_swapping_two_sessions_turns_the_verdict_around(
    a: list[float], b: list[float], floor: float, drift: float
) -> None:
    one, other = compare_groups(a, b, floor, drift=drift), compare_groups(b, a, floor, drift=drift)
    assert other.verdict == OPPOSITE[one.verdict]
    assert other.ratio * one.ratio == pytest.approx(1)
    assert other.p == pytest.approx(one.p, rel=1e-6)
    assert other.low == (pytest.approx(1 / one.high) if math.isfinite(one.high) else 0)


@given(SIDES, SIDES, FLOORS, DRIFTS, st.floats(1e-3, 1e3), st.randoms())
def test_neither_unit_nor_order_matter_in_sessions(
    a: list[float], b: list[float], floor: float, drift: float, unit: float, draw: random.Random
) -> None:
    one = compare_groups(a, b, floor, drift=drift)
    mixed = [[unit * x for x in draw.sample(side, len(side))] for side in (a, b)]
    other = compare_groups(*mixed, floor, drift=drift)
    assert other.ratio == pytest.approx(one.ratio)
    assert (other.low, other.high) == pytest.approx((one.low, one.high))


@given(SIDES, SIDES, FLOORS)
def test_what_may_drift_only_ever_takes_differences_away(a: list[float], b: list[float], floor: float) -> None:
    free, still = compare_groups(a, b, floor, drift=DRIFT), compare_groups(a, b, floor)
    assert free.verdict in (still.verdict, "undecided", "same")
    assert free.p >= still.p
    assert free[1:4] == still[1:4]


def test_the_whole_interval_of_a_difference_lies_beyond_the_drift() -> None:
    a = [1.0, 1.001, 0.999, 1.0, 1.0]
    found = [compare_groups(a, [by * x for x in a], drift=DRIFT) for by in (1.01, 1.0205, 1.03, 1 / 1.03)]
    assert [one.verdict for one in found] == ["same", "undecided", "slower", "faster"]
    assert [one.low > 1 + DRIFT for one in found[:3]] == [False, False, True]
    assert [one.p < ALPHA for one in found] == [False, False, True, True]


def test_what_is_called_the_same_hides_no_more_than_two_drifts() -> None:
    a = [1.0, 1.001, 0.999, 1.0, 1.0]
    found = [compare_groups(a, [by * x for x in a], drift=DRIFT).verdict for by in (1.0, 1.015, 1.02)]
    assert found == ["same", "same", "undecided"]
    still = [compare_groups(a, [by * x for x in a], drift=0.0).verdict for by in (1.0, 1.005, 1.009)]
    assert still == ["same", "same", "undecided"]
    wide = [compare_groups(a, [by * x for x in a], margin=0.1, drift=DRIFT).verdict for by in (1.07, 1.08)]
    assert wide == ["same", "undecided"]
    assert (same_limit(0.01, 0.02), same_limit(0.1, 0.02), same_limit(0.01, 0.0)) == (0.04, 0.1, 0.01)


def test_twice_the_floor_is_demanded_of_sessions_too() -> None:
    a = [1.0, 1.001, 0.999, 1.0, 1.0]
    b = [1.05 * x for x in a]
    assert [compare_groups(a, b, floor).verdict for floor in (0.0, 0.02, 0.03)] == ["slower", "slower", "undecided"]


def test_sessions_are_compared_as_welch_does() -> None:
    a, b = [1.00, 1.02, 1.01, 1.005], [1.03, 1.05, 1.06, 1.02, 1.04]
    found = compare_groups(a, b, drift=0.0)
    reference = ttest_ind(np.log(b), np.log(a), equal_var=False)
    assert found.p == pytest.approx(reference.pvalue)
    assert found.ratio == pytest.approx(gmean(b) / gmean(a))
    for end in (found.low, found.high):  # the test just does not reject these ends
        assert compare_groups([end * x for x in a], b, drift=0.0).p == pytest.approx(ALPHA)


def test_for_a_lone_process_the_floor_stands_in() -> None:
    assert compare_groups([1.0], [1.5]) == Comparison("undecided", pytest.approx(1.5), 0.0, math.inf, 1.0)
    assert compare_groups([1.0], [1.5], floor=0.01).verdict == "slower"
    assert compare_groups([1.0], [1.04], floor=0.01).verdict == "undecided"
    assert compare_groups([1.0, 1.001, 0.999], [1.5]).verdict == "undecided"
    assert compare_groups([1.0, 1.001, 0.999], [0.5], floor=0.01).verdict == "faster"


def test_sessions_without_any_spread() -> None:
    found = compare_groups([1.0] * 4, [1.0] * 5)
    assert (found.verdict, found.ratio, found.p) == ("same", 1.0, 1.0)
    found = compare_groups([1.0] * 4, [2.0] * 4)
    assert found.verdict == "slower"
    assert 0 < found.p < 1e-5


def test_a_few_processes_decide_nothing_unless_the_noise_is_known() -> None:
    a, b = [1.0, 1.001, 0.999, 1.0], [1.5, 1.501, 1.499, 1.5]
    assert [compare_groups(a[:n], b[:n]).verdict for n in (2, 3, 4)] == ["undecided", "undecided", "slower"]
    assert compare_groups(a, b[:3]).verdict == "undecided"
    assert compare_groups(a, b[:3], floor=0.01).verdict == "slower"
    quiet, loud = (compare_groups(a[:3], b[:3], floor) for floor in (0.01, 0.05))
    assert loud.high / loud.low > quiet.high / quiet.low


# Many cases and several looks.


def called(verdict: str, p: float) -> Comparison:
    return Comparison(verdict, 1.0, 0.9, 1.1, p)  # type: ignore[arg-type]


CASES = st.lists(st.builds(called, st.sampled_from(sorted(OPPOSITE)), st.floats(0, 1)), max_size=30)


@given(CASES)
def test_over_many_cases_verdicts_are_only_taken_back(found: list[Comparison]) -> None:
    kept = control_false_discoveries(found)
    assert [one[1:] for one in kept] == [one[1:] for one in found]
    for before, after in zip(found, kept, strict=True):
        assert after.verdict in (before.verdict, "undecided")
        assert before.verdict not in ("same", "undecided") or after == before


@given(CASES)
def test_the_surer_one_stays_if_the_less_sure_one_does(found: list[Comparison]) -> None:
    kept = [one.p for one in control_false_discoveries(found) if one.verdict in ("faster", "slower")]
    for before, after in zip(found, control_false_discoveries(found), strict=True):
        if before.verdict != after.verdict:
            assert before.p > max(kept, default=-1.0)


def test_the_thresholds_are_those_of_benjamini_and_hochberg() -> None:
    """For four cases at 5 % they are 1.25, 2.5, 3.75 and 5 %; the third passes, and so does the second."""
    found = [called("slower", p) for p in (0.01, 0.03, 0.037, 0.06)]
    assert [one.verdict for one in control_false_discoveries(found)] == ["slower", "slower", "slower", "undecided"]
    assert [one.verdict for one in control_false_discoveries(found, q=0.03)] == ["undecided"] * 4
    assert control_false_discoveries([]) == []


def test_one_of_many_needs_to_be_surer() -> None:
    quiet = [called("same", 0.5)] * 99
    assert control_false_discoveries([called("slower", 0.009)])[0].verdict == "slower"
    assert control_false_discoveries([called("slower", 0.009), *quiet])[0].verdict == "undecided"
    assert control_false_discoveries([called("slower", 0.0004), *quiet])[0].verdict == "slower"


def test_sides_at_both_ends_of_all_numbers_have_a_ratio() -> None:
    """The factor itself is not a finite number."""
    for few in (1, 5):
        found = compare_groups([5e-324] * few, [1e308] * few)
        assert 1e300 < found.ratio < math.inf
        back = compare_groups([1e308] * few, [5e-324] * few)
        assert 0 < back.ratio < 1e-300
    assert found.verdict == "slower"
