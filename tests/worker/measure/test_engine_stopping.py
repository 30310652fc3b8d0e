"""Stopping rules, asked with invented numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from opmark.schema import Sampling
from opmark.worker.measure.engine import FixedCount, Precision, WarmUp

RULE = Sampling(
    warmup_min=1.0, warmup_max=10.0, warmup_agreement=0.02,
    sample_time=0.1, min_samples=20, min_time=2.0, max_time=30.0, rel_ci=0.01,
)  # fmt: skip

STEADY = [1.0] * 20
# The interval of 20 samples goes from the 6th to the 15th: half of it is 20 % of the median here.
SPREAD = [1.0 + 0.1 * (7 * i % 20 - 9.5) / 2.25 for i in range(20)]
"""Evenly spread samples, in an order in which neighbours are not alike."""


def test_one_window_is_never_warm() -> None:
    warm = WarmUp(RULE)
    assert not warm.done([1.0], 5.0)
    assert not warm.settled


def test_two_windows_that_agree_are_warm() -> None:
    warm = WarmUp(RULE)
    warm.done([1.0, 1.0, 5.0], 1.0)
    assert warm.done([9.0, 1.01, 1.0], 2.0), "medians are compared, not means"
    assert warm.settled


@pytest.mark.parametrize(("second", "agrees"), [(1.0199, True), (1.0201, False), (0.9801, True), (0.9799, False)])
def test_agreement_has_a_border_on_both_sides(second: float, agrees: bool) -> None:
    warm = WarmUp(RULE)
    warm.done([1.0], 1.0)
    assert warm.done([second], 2.0) is agrees
    assert warm.settled is agrees


def test_the_border_of_agreement_belongs_to_it() -> None:
    warm = WarmUp(replace(RULE, warmup_agreement=0.25))
    warm.done([1.0], 1.0)
    assert warm.done([1.25], 2.0)


def test_agreement_before_the_shortest_time_is_not_enough() -> None:
    warm = WarmUp(RULE)
    warm.done([1.0], 0.1)
    assert not warm.done([1.0], 0.9)
    assert warm.settled
    assert warm.done([1.0], 1.0)


def test_only_neighbouring_windows_are_compared() -> None:
    warm = WarmUp(RULE)
    for elapsed, value in enumerate([1.0, 2.0, 1.0, 2.0]):
        assert not warm.done([value], 1.0 + elapsed)
    assert warm.done([2.0], 6.0)


def test_a_slow_descent_that_goes_on_is_not_warm() -> None:
    warm = WarmUp(RULE)
    assert not any(warm.done([0.9**i], 1.0 + i / 10) for i in range(20))


def test_the_longest_time_ends_it_unsettled() -> None:
    warm = WarmUp(RULE)
    assert not warm.done([1.0], 9.0)
    assert warm.done([2.0], 10.0)
    assert not warm.settled


def test_the_longest_time_ends_it_even_with_the_first_window() -> None:
    warm = WarmUp(RULE)
    assert warm.done([1.0], 10.0)
    assert not warm.settled


def test_windows_that_parted_again_are_not_settled() -> None:
    warm = WarmUp(RULE)
    warm.done([1.0], 0.1)
    warm.done([1.0], 0.2)
    assert warm.settled
    assert not warm.done([2.0], 2.0)
    assert not warm.settled


def test_enough_samples_long_enough_and_narrow_enough_is_precise() -> None:
    assert Precision(RULE).reached(STEADY, 2.0) == "precise"


def test_too_few_samples_are_not_enough() -> None:
    assert Precision(RULE).reached(STEADY[:19], 5.0) is None


def test_too_short_a_time_is_not_enough() -> None:
    assert Precision(RULE).reached(STEADY, 1.99) is None


def test_too_wide_an_interval_is_not_enough() -> None:
    assert Precision(RULE).reached(SPREAD, 5.0) is None


def test_the_width_asked_for_is_half_the_interval_over_the_median() -> None:
    assert Precision(replace(RULE, rel_ci=0.2001)).reached(SPREAD, 5.0) == "precise"
    assert Precision(replace(RULE, rel_ci=0.1999)).reached(SPREAD, 5.0) is None


def test_samples_that_follow_each_other_are_worth_less() -> None:
    assert Precision(replace(RULE, rel_ci=0.2001)).reached(sorted(SPREAD), 5.0) is None


def test_the_border_of_the_width_belongs_to_it() -> None:
    # Of six samples the interval is the whole range: from 0.75 to 1.25, a quarter of the median to each side.
    rule = Precision(replace(RULE, min_samples=6, rel_ci=0.25))
    assert rule.reached([0.75, 1.0, 1.0, 1.0, 1.0, 1.25], 5.0) == "precise"


def test_fewer_than_six_samples_are_never_precise() -> None:
    generous = Precision(replace(RULE, min_samples=1, rel_ci=1000.0))
    assert generous.reached([1.0] * 5, 5.0) is None
    assert generous.reached([1.0] * 6, 5.0) == "precise"


def test_a_spent_budget_ends_it_however_wide_it_is() -> None:
    assert Precision(RULE).reached(SPREAD, 29.9) is None
    assert Precision(RULE).reached(SPREAD, 30.0) == "budget"


def test_a_spent_budget_is_named_even_where_it_is_precise() -> None:
    assert Precision(RULE).reached(STEADY, 30.0) == "budget"


def test_a_budget_is_overdrawn_for_three_samples() -> None:
    rule = Precision(RULE)
    assert rule.reached([15.0, 16.0], 31.0) is None
    assert rule.reached([15.0, 16.0, 15.0], 46.0) == "budget"


def test_but_not_where_the_calls_are_very_long() -> None:
    rule = Precision(RULE)
    assert rule.reached([299.0], 299.0) is None
    assert rule.reached([300.0], 300.0) == "budget"


@pytest.mark.parametrize("count", [1, 7])
def test_a_count_is_enough_when_it_is_reached_and_not_before(count: int) -> None:
    rule = FixedCount(count)
    assert rule.reached([1.0] * (count - 1), 1e9) is None
    assert rule.reached([1.0] * count, 0.0) == "count"
    assert rule.reached([1.0] * (count + 1), 0.0) == "count"


def test_samples_that_are_all_nothing_are_as_precise_as_can_be() -> None:
    assert Precision(RULE).reached([0.0] * 20, 2.0) == "precise"
