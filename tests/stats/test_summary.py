"""Robust measures of spread."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.stats import noise, outlier_limit, relative_deviation, robust_deviation
from opmark.stats.summary import percentile

pytestmark = pytest.mark.verdicts

samples = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60)
scales = st.integers(-20, 20).map(lambda power: 2.0**power)


@pytest.mark.parametrize(("values", "middle"), [([3.0], 3.0), ([1.0, 9.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 3.0], 2.5)])
def test_the_median_by_hand(values: list[float], middle: float) -> None:
    assert median(values) == middle


def test_the_deviation_by_hand() -> None:
    # Median 3, distances 2 1 0 1 97, their median 1.
    assert robust_deviation([1.0, 2.0, 3.0, 4.0, 100.0]) == pytest.approx(1.4826)
    assert noise([1.0, 2.0, 3.0, 4.0, 100.0]) == pytest.approx(1.4826 / 3)


def test_an_outlier_is_far_off_by_the_spread_and_by_a_difference_that_matters() -> None:
    assert outlier_limit([1.0, 2.0, 3.0, 4.0, 100.0]) == pytest.approx(3 + 14.826 * 1.4826)
    assert outlier_limit([10.0, 10.0, 10.0, 11.0]) == pytest.approx(12.0)


@given(samples, scales)
@settings(deadline=None)
def test_noise_does_not_depend_on_the_unit(values: list[float], scale: float) -> None:
    assert noise([scale * value for value in values]) == noise(values)


@given(samples, scales)
@settings(deadline=None)
def test_the_deviation_has_the_unit_of_the_samples(values: list[float], scale: float) -> None:
    assert robust_deviation([scale * value for value in values]) == scale * robust_deviation(values)


@given(st.floats(1e-9, 1e3), st.integers(1, 30))
@settings(deadline=None)
def test_equal_samples_have_no_noise(value: float, count: int) -> None:
    assert noise([value] * count) == 0.0


def test_normal_samples_show_their_standard_deviation() -> None:
    values = np.random.default_rng(1).normal(100.0, 3.0, 20_000).tolist()
    assert robust_deviation(values) == pytest.approx(3.0, rel=0.03)
    assert noise(values) == pytest.approx(0.03, rel=0.03)


def test_a_few_outliers_do_not_move_it_and_would_move_the_standard_deviation() -> None:
    quiet = np.random.default_rng(2).normal(100.0, 3.0, 1000).tolist()
    disturbed = quiet[:-20] + [1e6] * 20
    assert noise(disturbed) == pytest.approx(noise(quiet), rel=0.1)
    assert np.std(disturbed) > 1000 * np.std(quiet)


def test_a_median_of_zero_has_no_noise_to_speak_of() -> None:
    assert noise([0.0, 0.0, 0.0, 1.0]) == 0.0


def test_the_relative_deviation_by_hand() -> None:
    # Mean 4, squares of the distances 4 0 4, over two.
    assert relative_deviation([2.0, 4.0, 6.0]) == pytest.approx(2.0 / 4.0)


@pytest.mark.parametrize("values", [[3.0], [0.0, 0.0]])
def test_one_value_or_a_mean_of_zero_has_no_relative_deviation(values: list[float]) -> None:
    assert relative_deviation(values) == 0.0


def test_one_value_far_out_counts_in_the_relative_deviation() -> None:
    assert relative_deviation([1.0, 1.0, 1.0, 2.0]) > 0.3 > noise([1.0, 1.0, 1.0, 2.0])


@settings(deadline=None)
@given(samples, st.integers(0, 100))
def test_percentiles_are_those_of_numpy(values: list[float], percent: int) -> None:
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)))
