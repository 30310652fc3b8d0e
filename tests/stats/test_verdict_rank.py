"""The rank-sum test, compared with SciPy's."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from opmark.stats.verdict import rank_sum_p

pytestmark = pytest.mark.verdicts

VALUES = st.lists(st.one_of(st.integers(0, 5).map(float), st.floats(-1e6, 1e6)), min_size=1, max_size=40)


@given(VALUES, VALUES)
def test_it_is_the_test_of_mann_and_whitney(a: list[float], b: list[float]) -> None:
    found = rank_sum_p(a, b)
    if len(set(a + b)) == 1:
        assert found == 1
    else:
        known = mannwhitneyu(a, b, method="asymptotic", use_continuity=False).pvalue
        assert found == pytest.approx(known, abs=1e-6)


@given(VALUES, VALUES)
def test_which_of_the_two_comes_first_does_not_matter(a: list[float], b: list[float]) -> None:
    assert rank_sum_p(a, b) == pytest.approx(rank_sum_p(b, a), abs=1e-9)
    assert 0 <= rank_sum_p(a, b) <= 1


def test_a_clear_difference_is_no_chance() -> None:
    assert rank_sum_p([1.0 + i / 100 for i in range(50)], [3.0 + i / 100 for i in range(50)]) < 1e-9


def test_samples_of_the_same_are_called_different_as_rarely_as_promised() -> None:
    draw = random.Random(1)
    called = sum(
        rank_sum_p([draw.gauss(0, 1) for _ in range(40)], [draw.gauss(0, 1) for _ in range(40)]) < 0.05
        for _ in range(1000)
    )
    assert 25 <= called <= 80
