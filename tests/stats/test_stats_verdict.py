"""Faster, slower, the same or undecided: seldom wrong about identical code, seldom silent about a difference."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opmark.stats.verdict import ALPHA, MARGIN, Comparison, compare_pairs

TIMES = st.floats(1e-7, 1e-2)
PAIRS = st.lists(st.tuples(TIMES, st.floats(0.9, 1.1)), min_size=2, max_size=12)
FLOORS = st.floats(0.0, 0.05)
OPPOSITE = {"faster": "slower", "slower": "faster", "same": "same", "undecided": "undecided"}


def split(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [time for time, _ in pairs], [time * factor for time, factor in pairs]


def abba(draw: random.Random, pairs: int, spread: float, effect: float = 0.0, drift: float = 0.0) -> Comparison:
    """Process medians in the order ABBA ABBA ..., each off by chance, all of them by what drifts meanwhile."""
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


# With a known rate of false alarms.


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


# The words.


@given(PAIRS, FLOORS)
def test_swapping_the_two_turns_the_verdict_around(pairs: list[tuple[float, float]], floor: float) -> None:
    a, b = split(pairs)
    one, other = compare_pairs(a, b, floor), compare_pairs(b, a, floor)
    assert other.verdict == OPPOSITE[one.verdict]
    assert other.ratio * one.ratio == pytest.approx(1)
    assert other.low * one.high == pytest.approx(1)


@given(PAIRS, FLOORS)
def test_the_same_lies_inside_the_margin(pairs: list[tuple[float, float]], floor: float) -> None:
    """Most pairs differ by too much for that; so they are drawn together."""
    a, b = split([(time, factor ** (1 / 10)) for time, factor in pairs])
    found = compare_pairs(a, b, floor)
    assume(found.verdict == "same")
    assert abs(math.log(found.ratio)) <= math.log1p(MARGIN)


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
    assert compare_pairs([1.0], [2.0]) == Comparison("undecided", pytest.approx(2.0), 0.0, math.inf)


def test_without_any_difference_between_pairs_the_interval_is_a_point() -> None:
    assert compare_pairs([1.0, 1.0], [1.0, 1.0]) == Comparison("same", 1.0, 1.0, 1.0)


def test_a_value_without_its_partner_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare_pairs([1.0, 1.0], [1.0])


def test_the_interval_is_that_of_student_on_the_logarithms() -> None:
    logs = [0.01, 0.03, 0.02]
    found = compare_pairs([1.0] * 3, [math.exp(x) for x in logs])
    half = 9.924843 * 0.01 / math.sqrt(3)  # the quantile of 99.5 % with two degrees of freedom
    assert math.log(found.ratio) == pytest.approx(0.02)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((0.02 - half, 0.02 + half), rel=1e-5)
