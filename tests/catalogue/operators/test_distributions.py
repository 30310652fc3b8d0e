"""Random values: deviations that chance explains pass, others are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators._distributions import (
    alternation,
    expected_uniform,
    place_in_step,
    refuse_outside,
    snap,
    uniformity,
)

N = 100_000


def _uniform(seed: int, n: int = N) -> Any:
    return np.random.default_rng(seed).random(n)


@pytest.mark.parametrize("n", [1, 2, 64, 1000, N])
def test_uniform_values_count_as_such_whatever_their_number(n: int) -> None:
    for seed in range(50):
        np.testing.assert_array_equal(uniformity(_uniform(seed, n)), expected_uniform())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda u: u * 0 + 0.5,
        lambda u: u * 0.97,
        lambda u: u**1.05,
        lambda u: np.sort(u),
        lambda u: np.where(u > 0.98, 0.98, u),
        lambda u: np.where(np.arange(u.size) % 20 == 0, 0.5, u),
        lambda u: np.repeat(u[: u.size // 2], 2),
    ],
    ids=["constant", "scaled", "bent", "sorted", "cut off", "one in twenty missing", "every value twice"],
)
def test_other_values_do_not(spoil: Any) -> None:
    assert not np.array_equal(uniformity(spoil(_uniform(0))), expected_uniform())


def test_what_is_far_off_is_reported_as_it_is() -> None:
    assert snap(0.5, 0.4, 0.01) == 0.5
    assert snap(0.45, 0.4, 0.01) == 0.4


def test_marks_that_take_turns_are_noticed() -> None:
    assert alternation(np.arange(1000) % 2 == 0, 0.5) == 0
    assert alternation(_uniform(0, 1000) < 0.3, 0.3) == pytest.approx(0.58)


def test_a_value_with_a_probability_of_its_own_is_placed_within_its_step() -> None:
    below, upto = np.zeros(N), np.full(N, 0.25)
    places = place_in_step(below, upto)
    assert places.min() >= 0
    assert places.max() < 0.25
    np.testing.assert_array_equal(uniformity(places * 4), expected_uniform())


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.array([0.5, 1.5, 0.5]), "1 of 3 values cannot be drawn"),
        (np.array([-0.5, 0.5, 0.5]), "1 of 3 values cannot be drawn"),
        (np.array([0.5, np.nan, 0.5]), "not finite"),
        (np.array([0.5, np.inf, 0.5]), "not finite"),
        (np.array([0.5, 0.5]), "shape"),
    ],
)
def test_what_no_chance_explains_is_refused(values: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        refuse_outside(values, (3,), 0.0, 1.0, 1e-5)


def test_rounding_may_reach_the_end() -> None:
    refuse_outside(np.array([1.0 + 1e-6]), (1,), 0.0, 1.0, 1e-5)
    refuse_outside(np.array([1e30]), (1,), -np.inf, np.inf, 1e-5)
