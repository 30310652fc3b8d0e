from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from opmark.schema import Numerics
from opmark.worker.verify import accuracy
from opmark.worker.verify.accuracy import numerics

finite = st.floats(-1e30, 1e30, allow_subnormal=False)


def test_an_output_that_equals_the_reference_is_off_by_nothing() -> None:
    found = numerics(np.array([1.0, -2.0]), np.array([1.0, -2.0]), "float32")
    assert found == Numerics(
        2, 2, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, found.cosine, 0.0, 0.0, 0.0, found.rms, (2, *[0] * 15)
    )
    assert found.cosine == pytest.approx(1.0)


def test_what_is_not_finite_is_counted_and_never_compared() -> None:
    output = np.array([np.nan, np.inf, -np.inf, 1.0, np.nan])
    expected = np.array([np.nan, np.inf, 2.0, 1.5, 0.0])
    found = numerics(output, expected, "float64")
    assert (found.elements, found.compared) == (5, 1)
    assert (found.nan, found.inf, found.nan_expected, found.inf_expected) == (2, 2, 1, 1)
    assert (found.max_abs, found.max_rel) == (0.5, 0.5 / 1.5)


def test_where_nothing_can_be_compared_nothing_is_told() -> None:
    found = numerics(np.array([np.nan]), np.array([1.0]), "float32")
    assert (found.compared, found.nan) == (0, 1)
    assert [found.max_abs, found.mean_abs, found.max_rel, found.cosine, found.max_ulp] == [None] * 5
    assert numerics(np.zeros((0, 3)), np.zeros((0, 3)), "float32").max_abs is None


def test_a_relative_error_needs_something_to_relate_to() -> None:
    found = numerics(np.array([1e-9]), np.array([0.0]), "float32")
    assert (found.max_abs, found.max_rel, found.cosine) == (1e-9, None, None)
    assert found.max_ulp is not None  # in steps of the smallest number there is
    assert found.max_ulp > 1e30


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("value", [1.0, 1.5, 0.1, 1000.0, 6e-5])
def test_the_next_number_is_one_unit_of_the_last_place_away(dtype: str, value: float) -> None:
    here = np.dtype(dtype).type(value)
    following = np.nextafter(here, np.dtype(dtype).type(np.inf))
    found = numerics(np.array([float(following)]), np.array([float(here)]), dtype)
    assert found.max_ulp == pytest.approx(1.0)


def test_types_that_numpy_lacks_have_a_last_place_too() -> None:
    assert numerics(np.array([1.0078125]), np.array([1.0]), "bfloat16").max_ulp == pytest.approx(1.0)
    assert numerics(np.array([1.125]), np.array([1.0]), "float8_e4m3fn").max_ulp == pytest.approx(1.0)


def test_whole_numbers_have_no_last_place() -> None:
    found = numerics(np.array([3, 4]), np.array([3, 5]), "int32")
    assert (found.max_abs, found.max_ulp, found.mean_ulp) == (1.0, None, None)


def test_truth_values_and_complex_numbers_are_compared() -> None:
    assert numerics(np.array([True, False]), np.array([True, True]), "bool").max_abs == 1.0
    assert numerics(np.array([1 + 1j]), np.array([1 + 0j]), "").max_abs == pytest.approx(1.0)


def test_the_cosine_sees_a_sign_and_not_a_factor() -> None:
    values = np.array([1.0, -2.0, 3.0])
    assert numerics(2 * values, values).cosine == pytest.approx(1.0)
    assert numerics(-values, values).cosine == pytest.approx(-1.0)
    assert numerics(1e200 * values, 1e-200 * values).cosine == pytest.approx(1.0)


@given(arrays(np.float64, array_shapes(max_dims=2, max_side=6), elements=finite), st.integers(0, 100))
def test_the_mean_is_never_above_the_maximum(expected: np.ndarray, seed: int) -> None:
    output = expected + np.random.default_rng(seed).normal(size=expected.shape)
    found = numerics(output, expected, "float64")
    assert found.max_abs is not None
    assert found.mean_abs is not None
    assert found.mean_abs <= found.max_abs * (1 + 1e-12)
    assert found.cosine is None or -1.0 <= found.cosine <= 1.0


def test_whole_numbers_that_a_float_cannot_tell_apart_are_told_apart() -> None:
    big = np.array([1 << 62, 5])
    assert numerics(big + np.array([1, 0]), big, "int64").max_abs == 1.0


def test_errors_are_counted_by_decade_of_the_magnitude_of_the_reference() -> None:
    expected = np.full(8, 100.0)
    errors = np.array([0.0, 2e-10, 3e-6, 4e-6, 5e-2, 5.0, 2e3, 2e5])
    found = numerics(expected + errors, expected)
    assert found.rms == pytest.approx(100.0)
    assert found.rmse == pytest.approx(np.sqrt(np.square(errors).mean()), rel=1e-6)
    # below 1e-12, then 1e-12, 1e-11, ...: 3e-8 twice, 5e-4, 5e-2, 20, and 2000 beyond the last edge of 100
    assert found.histogram == (1, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1)


def test_without_a_magnitude_errors_are_counted_as_they_are() -> None:
    found = numerics(np.array([0.5, 0.0]), np.zeros(2))
    assert (found.rms, sum(found.histogram), found.histogram[0], found.histogram[12]) == (0.0, 2, 1, 1)


def test_the_smallest_whole_number_has_a_size() -> None:
    smallest = np.array([-128, -128], np.int8)
    assert numerics(smallest, smallest, "int8").rms == 128.0


def test_errors_that_overflow_have_no_root_mean_square() -> None:
    expected = np.array([1.5e308, 1.0])
    found = numerics(-expected, expected, "float64")
    assert (found.max_abs, found.mean_abs, found.rmse) == (None, None, None)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64", "int8", "bool"])
def test_blocks_say_what_the_whole_says(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    expected = (random.normal(size=(7, 150)) * 20).astype(dtype)
    output = np.where(random.random(expected.shape) < 0.3, (random.normal(size=expected.shape) * 20), expected)
    output = output.astype(dtype)
    whole = numerics(output, expected, dtype)
    monkeypatch.setattr(accuracy, "_BLOCK", 64)
    parts = numerics(output, expected, dtype)
    assert (parts.histogram, parts.max_abs, parts.max_ulp) == (whole.histogram, whole.max_abs, whole.max_ulp)
    for name in ("mean_abs", "max_rel", "mean_rel", "cosine", "rmse", "rms"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-12), name
    if dtype.startswith("float"):
        assert parts.mean_ulp == pytest.approx(whole.mean_ulp, rel=1e-12)
