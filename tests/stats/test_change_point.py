"""Change points of a series: laws and edge cases. Error rates are tested in test_stats_proof.py."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.stats.change_point import (
    BOTH_LASTING,
    LARGE,
    LASTING,
    SHORTEST,
    Change,
    best_split,
    change_points,
    describe_series,
    drop_outliers,
    early_warning,
    segment,
)

pytestmark = pytest.mark.verdicts

SEEDS = st.integers(0, 2**32 - 1)
PLACES = st.integers(8, 32)


def series(seed: int, steps: dict[int, float], count: int = 40, noise: float = 0.004) -> list[float]:
    logs = np.random.default_rng(seed).normal(0, noise, count)
    for at, step in steps.items():
        logs[at:] += math.log1p(step)
    return [float(value) for value in 1e-5 * np.exp(logs)]


def places(values: list[float]) -> list[int]:
    return [change.at for change in change_points(values)]


# Laws.


@settings(deadline=None)
@given(SEEDS, PLACES, st.sampled_from([-0.2, -0.06, 0.0, 0.06, 0.3]))
def test_a_series_read_backwards_has_the_same_changes_backwards(seed: int, at: int, step: float) -> None:
    values = series(seed, {at: step})
    forth, back = change_points(values), change_points(values[::-1])
    assert [40 - change.at for change in back[::-1]] == [change.at for change in forth]
    for one, other in zip(forth, back[::-1], strict=True):
        assert one.ratio * other.ratio == pytest.approx(1)
        assert one.low * other.high == pytest.approx(1)
        assert one.p == pytest.approx(other.p, rel=1e-3)


@settings(deadline=None)
@given(SEEDS, PLACES, st.sampled_from([-0.06, 0.0, 0.06]), st.floats(1e-6, 1e6))
def test_the_unit_of_time_does_not_matter(seed: int, at: int, step: float, unit: float) -> None:
    values = series(seed, {at: step})
    one, other = change_points(values), change_points([unit * value for value in values])
    assert [change.at for change in one] == [change.at for change in other]
    assert [change.ratio for change in one] == pytest.approx([change.ratio for change in other])


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1e2), max_size=30), st.floats(0, 0.05))
def test_whatever_the_series_changes_are_in_order_sure_and_large_enough(values: list[float], floor: float) -> None:
    found = change_points(values, floor)
    bounds = [0, *(change.at for change in found), len(values)]
    assert all(later - earlier >= SHORTEST for earlier, later in pairwise(bounds)) or not found
    for change in found:
        assert change.p < 0.01
        assert change.low <= change.ratio <= change.high
        assert not change.low <= 1 <= change.high
        assert abs(math.log(change.ratio)) >= math.log1p(max(0.02, 3 * floor))
        assert change.after / change.before == pytest.approx(change.ratio)


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1e2), max_size=30))
def test_equal_series_have_equal_answers(values: list[float]) -> None:
    assert change_points(values) == change_points(list(values))
    assert isinstance(early_warning(values), bool)


@settings(deadline=None)
@given(SEEDS, PLACES)
def test_a_single_night_changes_nothing(seed: int, at: int) -> None:
    values = series(seed, {20: 0.05})
    values[at] *= 1.5
    assert [abs(place - 20) <= 1 for place in places(values)] == [True]


def test_every_change_splits_the_stretches_next_to_it_best() -> None:
    """This also holds if the first fit had more changes, which is frequent for autocorrelated series."""
    told = 0
    for seed in range(150):
        logs = np.convolve(np.random.default_rng(seed).normal(0, 0.01, 102), (0.6, 0.6, 0.5), "valid")
        logs[60:] += math.log1p(0.05)
        if len(drop_outliers(logs).kept) < len(logs):
            continue
        bounds = [0, *places(np.exp(logs).tolist()), len(logs)]
        for begin, at, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
            told += 1
            assert at - begin == best_split(logs[begin:end], SHORTEST)
    assert told > 50


# Edge cases.


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [1.0] * 5, [1.0] * 200, [1.0, 1.0, 1.0, 2.0, 2.0]])
def test_too_short_or_constant_series_have_none(values: list[float]) -> None:
    assert change_points(values) == []
    assert not early_warning(values)


def test_two_constant_levels_are_a_change_without_a_doubt() -> None:
    (found,) = change_points([1.0] * 3 + [1.5] * 4)
    assert found == Change(3, *(pytest.approx(x) for x in (1.0, 1.5, 1.5, 1.5, 1.5)), 0.0)  # type: ignore[arg-type]


def test_levels_and_interval_of_a_change() -> None:
    (found,) = change_points(series(1, {25: 0.10}))
    assert found.at == 25
    assert (found.before, found.after) == pytest.approx((1e-5, 1.1e-5), rel=0.003)
    assert found.low < 1.10 < found.high
    assert found.high / found.low < 1.02


@pytest.mark.parametrize("level", [1e-9, 1e-3, 1e5])
def test_a_step_below_the_margin_or_three_floors_is_none(level: float) -> None:
    values = [level * value / 1e-5 for value in series(2, {20: 0.04}, noise=0.001)]
    assert places(values) == [20]
    assert [len(change_points(values, margin=margin)) for margin in (0.03, 0.05)] == [1, 0]
    assert [len(change_points(values, floor=floor)) for floor in (0.012, 0.015)] == [1, 0]


def test_several_steps_up_and_down() -> None:
    assert places(series(3, {10: 0.05, 20: -0.08, 30: 0.03}, noise=0.002)) == [10, 20, 30]


def test_nights_that_hang_together_are_worth_less() -> None:
    """The series has the same step and noise, once in another order."""
    wander = np.repeat(np.random.default_rng(4).normal(0, 0.01, 10), 4)
    step = math.log1p(0.035) * (np.arange(40) >= 20)
    mixed = wander[np.random.default_rng(5).permutation(40)]
    sure, unsure = (change_points(np.exp(noise + step).tolist()) for noise in (mixed, wander))
    assert sure
    assert not unsure or unsure[0].p > sure[0].p


@pytest.mark.parametrize("total", [-0.08, 0.04, 0.1, 0.3])
def test_a_slow_drift_is_called_a_drift(total: float) -> None:
    ramp = np.linspace(0, 1, 100)
    noise = np.random.default_rng(6).normal(0, 0.01, 100)
    found = describe_series(np.exp(total * ramp + noise).tolist())
    assert (found.changes, found.states) == ([], None)
    assert found.drift is not None
    assert math.log(found.drift) == pytest.approx(total, abs=0.015)


def test_a_level_series_and_a_shallow_ramp_have_no_drift() -> None:
    noise = np.random.default_rng(6).normal(0, 0.01, 100)
    for total in (0.0, 0.01):
        assert describe_series(np.exp(total * np.linspace(0, 1, 100) + noise).tolist()).drift is None


def test_a_step_on_a_drift_is_a_step() -> None:
    noise = np.random.default_rng(6).normal(0, 0.005, 100)
    logs = 0.02 * np.linspace(0, 1, 100) + noise + 0.06 * (np.arange(100) >= 70)
    assert [abs(change.at - 70) <= 1 for change in change_points(np.exp(logs).tolist())] == [True]


@pytest.mark.parametrize("lasting", [3, 5, 8])
def test_two_states_are_called_two_states(lasting: int) -> None:
    state = np.arange(96) // lasting % 2
    noise = np.random.default_rng(7).normal(0, 0.005, 96)
    found = describe_series((1e-5 * np.exp(0.04 * state + noise)).tolist())
    assert (found.changes, found.drift) == ([], None)
    assert found.states is not None
    assert (found.states.low, found.states.high) == (pytest.approx(1e-5, rel=0.005), pytest.approx(1.04e-5, rel=0.005))
    assert found.states.moves == 96 // lasting - 1


def test_a_third_level_is_no_state() -> None:
    values = series(3, {20: 0.05, 30: 1 / 1.05 - 1, 60: 0.05, 80: 0.08}, count=100, noise=0.002)
    assert describe_series(values).states is None


def test_a_random_walk_has_no_levels() -> None:
    walk = np.cumsum(np.random.default_rng(8).normal(0, 0.01, 100))
    assert not any(change.settled for change in change_points(np.exp(walk).tolist()))


# A change is settled if a level beside it has lasted.


def test_a_small_step_is_settled_once_a_level_has_lasted() -> None:
    young, old = (series(1, {at: 0.05}, at + 10, noise=0.005) for at in (LASTING - 20, LASTING + 5))
    assert [(change.at, change.settled) for change in change_points(young)] == [(LASTING - 20, False)]
    assert [(change.at, change.settled) for change in change_points(old)] == [(LASTING + 5, True)]


def test_so_it_is_once_both_levels_together_have_lasted() -> None:
    half = BOTH_LASTING // 2
    for count, settled in ((BOTH_LASTING - 5, False), (BOTH_LASTING, True)):
        values = series(1, {half: 0.05}, count, noise=0.005)
        assert [(change.at, change.settled) for change in change_points(values)] == [(half, settled)]


def test_a_large_step_is_settled_at_once() -> None:
    assert [change.settled for change in change_points(series(1, {10: 1.2 * LARGE}, 20))] == [True]


def test_nights_near_the_other_level_are_a_state_that_was_there_before() -> None:
    """Two single nights and one visit of three, long ago."""
    values = series(2, {70: 0.05}, 80, noise=0.003)
    assert [change.settled for change in change_points(values)] == [True]
    for nights in ([20, 40], [30, 31, 32]):
        visited = [value * (1.05 if night in nights else 1.0) for night, value in enumerate(values)]
        assert not any(change.settled for change in change_points(visited)), nights
    slow = [value * (1.3 if night in (20, 40) else 1.0) for night, value in enumerate(values)]
    assert [change.settled for change in change_points(slow)] == [True], "outliers are not near the new level"


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_values_that_are_no_times_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        change_points([1.0, wrong, 1.0])


# Early warning.


def test_two_nights_in_a_row_warn_and_one_does_not() -> None:
    quiet = series(7, {})
    level = 1e-5
    assert not early_warning(quiet)
    assert not early_warning([*quiet, 1.2 * level])
    assert early_warning([*quiet, 1.2 * level, 1.2 * level])
    assert early_warning([*quiet, 0.8 * level, 0.8 * level])
    assert not early_warning([*quiet, 1.2 * level, 0.8 * level])


def test_a_warning_needs_the_margin_and_three_floors() -> None:
    values = [*series(8, {}, noise=0.001), 1.04e-5, 1.04e-5]
    assert early_warning(values)
    assert not early_warning(values, margin=0.05)
    assert not early_warning(values, floor=0.02)


def test_the_level_is_that_since_the_last_change() -> None:
    values = series(9, {20: 0.2})
    assert not early_warning(values)
    assert early_warning([*values, 1.3e-5, 1.3e-5])
    assert early_warning([*values, 1e-5, 1e-5])


# The fit beneath.


def brute(logs: np.ndarray, shortest: int, penalty: float) -> float:
    """Return the least cost over all ways to cut."""

    def cost(begin: int, end: int) -> float:
        return float(((logs[begin:end] - logs[begin:end].mean()) ** 2).sum())

    best = {0: -penalty}
    for end in range(shortest, len(logs) + 1):
        starts = [start for start in best if end - start >= shortest]
        best[end] = min(best[start] + cost(start, end) + penalty for start in starts)
    return best[len(logs)]


@settings(deadline=None)
@given(SEEDS, st.integers(6, 25), st.floats(0.1, 10))
def test_the_fit_costs_least(seed: int, count: int, penalty: float) -> None:
    logs = np.random.default_rng(seed).normal(size=count) + 3 * (np.arange(count) > count // 2)
    bounds = [0, *segment(logs, SHORTEST, penalty), count]
    stretches = [logs[begin:end] for begin, end in pairwise(bounds)]
    cost = sum(float(((x - x.mean()) ** 2).sum()) for x in stretches) + penalty * (len(stretches) - 1)
    assert cost == pytest.approx(brute(logs, SHORTEST, penalty))
    assert min(len(x) for x in stretches) >= SHORTEST


def test_a_split_lies_where_the_levels_part() -> None:
    assert best_split(np.array([0.0] * 7 + [1.0] * 4), SHORTEST) == 7
    assert best_split(np.array([0.0] * 10 + [1.0]), SHORTEST) == 8


def test_outliers_are_left_out_and_many_of_them_ask_for_longer_stretches() -> None:
    logs = np.random.default_rng(10).normal(0, 0.003, 100)
    assert drop_outliers(logs).shortest == SHORTEST
    logs[[20, 50, 51]] += 0.1
    kept, shortest = drop_outliers(logs)
    assert shortest == SHORTEST
    assert not {20, 50, 51} & set(kept.tolist())
    logs[5:95:8] += 0.1
    assert drop_outliers(logs).shortest > SHORTEST


def test_what_goes_to_and_fro_is_left_as_it_is() -> None:
    logs = np.random.default_rng(11).normal(0, 0.003, 100)
    logs[np.random.default_rng(12).random(100) < 0.3] += 0.1
    kept, shortest = drop_outliers(logs)
    assert len(kept) == 100
    assert shortest == SHORTEST


def test_a_step_over_all_numbers_is_a_step() -> None:
    """The factor itself is not a finite number."""
    (change,) = change_points([5e-324] * 8 + [1e308] * 8)
    assert change.at == 8
    assert 1e300 < change.ratio < math.inf
    assert all(0 < number < math.inf for number in (change.before, change.after, change.low, change.high))
