"""Arrays against arrays: what passes, what does not, and what is said of the worst place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from opmark.errors import WrongResult
from opmark.worker.verify.accuracy import ArrayErrors, compare_arrays

NAN, INF = np.nan, np.inf

values = st.floats(1e-3, 1e6) | st.floats(-1e6, -1e-3)
finite = arrays_of.arrays(np.float64, arrays_of.array_shapes(max_dims=3, max_side=4), elements=values)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def check(output, expected, relative: float = 0.0, **more: float) -> ArrayErrors:
    return compare_arrays([np.asarray(output)], [np.asarray(expected)], relative, **more)


def complaint(output, expected, relative: float = 0.0, **more: float) -> str:
    with pytest.raises(WrongResult) as caught:
        check(output, expected, relative, **more)
    return caught.value.message


@given(finite)
@settings(deadline=None)
def test_what_is_equal_passes_without_any_tolerance(array):
    assert check(array, array.copy()) == (0.0, 0.0)


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.square(array).mean()))


@given(finite, st.floats(1e-6, 1e-2))
@settings(deadline=None)
def test_an_error_inside_the_tolerance_passes_and_the_same_outside_does_not(array, tolerance):
    off = array + 0.9 * tolerance * (np.abs(array) + rms(array))
    check(off, array, tolerance, typical=tolerance)
    with pytest.raises(WrongResult):
        check(off, array, tolerance / 2, typical=tolerance / 2)


@given(finite, st.integers(-600, 600))
@settings(deadline=None)
def test_the_verdict_does_not_depend_on_the_unit(array, power):
    # A fixed absolute tolerance would let everything pass that is small.
    scale, off = 2.0**power, 1.01 * array
    check(scale * off, scale * array, typical=0.1 * np.abs(array).max() / rms(array))
    with pytest.raises(WrongResult):
        check(scale * off, scale * array, typical=0.005)


def test_the_largest_errors_are_reported():
    found = check(floats(1.5, 10.0, 2.0), floats(1.0, 9.0, 2.0), relative=1.0)
    assert found == (1.0, 0.5)


def test_the_largest_errors_are_those_of_all_outputs():
    found = compare_arrays([floats(1.5), floats(9.0)], [floats(1.0), floats(10.0)], 1.0, 0.0)
    assert found == (1.0, 0.5)


def test_an_error_relative_to_zero_is_only_absolute():
    assert check(floats(0.5, 1.0), floats(0.0, 1.0), typical=1.0) == (0.5, 0.0)


def test_a_reference_next_to_nothing_is_compared_without_a_warning():
    # The relative error is beyond any float; what counts is how large the others are.
    assert check(floats(0.5, 1.0), floats(5e-324, 1.0), typical=1.0).max_abs == 0.5


@pytest.mark.parametrize(("value", "passes"), [(1.5, True), (1.5000001, False), (0.5, True), (0.4999999, False)])
def test_the_border_of_the_typical_tolerance_belongs_to_it(value, passes):
    if passes:
        assert check(floats(value), floats(1.0), typical=0.5).max_abs == 0.5
    else:
        complaint(floats(value), floats(1.0), typical=0.5)


@pytest.mark.parametrize(("value", "passes"), [(5.0, True), (5.000001, False), (3.0, True), (2.999999, False)])
def test_the_border_of_the_relative_tolerance_belongs_to_it(value, passes):
    if passes:
        assert check(floats(value), floats(4.0), relative=0.25).max_rel == 0.25
    else:
        complaint(floats(value), floats(4.0), relative=0.25)


@pytest.mark.parametrize(("value", "passes"), [(4.5, True), (4.500001, False), (3.5, True), (3.499999, False)])
def test_the_border_of_the_absolute_tolerance_belongs_to_it(value, passes):
    if passes:
        assert check(floats(value), floats(4.0), absolute=0.5).max_abs == 0.5
    else:
        complaint(floats(value), floats(4.0), absolute=0.5)


def test_all_tolerances_add_up():
    allowed = {"relative": 0.25, "typical": 0.125, "absolute": 2.0}
    assert check(floats(7.5), floats(4.0), **allowed).max_abs == 3.5
    assert "0.25 x |expected| + 2.5;" in complaint(floats(7.6), floats(4.0), **allowed)


def test_the_typical_tolerance_is_of_the_root_mean_square_of_the_reference():
    # That of 1 and 7 is 5: half of it is allowed everywhere, at the small element too.
    assert check(floats(3.5, 7.0), floats(1.0, 7.0), typical=0.5).max_abs == 2.5
    assert "worst at [0]" in complaint(floats(3.6, 7.0), floats(1.0, 7.0), typical=0.5)


def test_a_reference_of_zeros_has_to_be_met_exactly():
    assert check(floats(0.0, 0.0), floats(0.0, 0.0), 0.1, typical=0.1) == (0.0, 0.0)
    complaint(floats(0.0, 1e-300), floats(0.0, 0.0), 0.1, typical=0.1)


def test_what_is_not_finite_does_not_widen_the_tolerance():
    complaint(floats(INF, NAN, 1.5), floats(INF, NAN, 1.0), typical=0.1)


def test_the_relative_tolerance_is_of_the_reference_and_not_of_the_output():
    complaint(floats(100.0), floats(1.0), relative=0.99)


@pytest.mark.parametrize(
    ("output", "expected"),
    [(NAN, 1.0), (1.0, NAN), (INF, 1.0), (1.0, INF), (INF, -INF), (-INF, INF), (NAN, INF), (INF, NAN)],
)
def test_what_is_not_finite_never_passes_for_something_else(output, expected):
    message = complaint(floats(0.0, output), floats(0.0, expected), relative=1e9, typical=1e9)
    assert "output 0 has 1 of 2 elements that are not finite" in message
    assert f"first at [1]: {output}, expected {expected}" in message


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_what_is_not_finite_passes_where_it_is_due(special):
    assert check(floats(special, 2.0), floats(special, 1.0), typical=2.0) == (1.0, 1.0)


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_a_special_value_does_not_hide_an_error_elsewhere(special):
    assert "worst at [1]" in complaint(floats(special, 2.0), floats(special, 1.0), typical=0.5)


@pytest.mark.parametrize("expected", [NAN, INF, -INF])
def test_an_integer_does_not_pass_for_what_is_not_finite(expected):
    assert "first at [1]: 7" in complaint(np.array([0, 7]), floats(0.0, expected), relative=1.0, typical=1.0)


def test_another_shape_is_wrong():
    assert complaint(np.zeros((2, 3)), np.zeros((3, 2))) == "output 0 has shape (2, 3), expected (3, 2)"


def test_a_shape_that_would_broadcast_is_wrong():
    assert complaint(np.zeros((1, 3)), np.zeros((3,))) == "output 0 has shape (1, 3), expected (3,)"


@pytest.mark.parametrize(("made", "expected"), [(1, 2), (2, 1), (0, 1)])
def test_another_number_of_outputs_is_wrong(made, expected):
    with pytest.raises(WrongResult, match=rf"^{made} outputs, expected {expected}$"):
        compare_arrays([floats(1.0)] * made, [floats(1.0)] * expected, 0.0, 0.0)


def test_the_output_that_is_wrong_is_named():
    with pytest.raises(WrongResult, match=r"^output 1: 1 of 2 elements"):
        compare_arrays([floats(1.0), floats(1.0, 2.0)], [floats(1.0), floats(1.0, 3.0)], 0.0, 0.0)


def test_the_message_has_count_tolerance_place_and_values():
    output = np.full((2, 3), 4.0)
    output[0, 1], output[1, 2] = 5.5, 2.0
    assert complaint(output, np.full((2, 3), 4.0), relative=1e-3, typical=0.25) == (
        "output 0: 2 of 6 elements are off by more than 0.001 x |expected| + 1; "
        "worst at [1, 2]: 2, expected 4, off by 2"
    )


def test_the_worst_is_the_one_furthest_outside_its_own_tolerance():
    # Off by 50 where 100 is allowed, and by 1 where 0.1 is.
    message = complaint(floats(1050.0, 2.0), floats(1000.0, 1.0), relative=0.1)
    assert "1 of 2 elements" in message
    assert "worst at [1]: 2, expected 1, off by 1" in message


def test_a_single_number_has_no_place():
    assert "worst at []: 5, expected 6" in complaint(np.float64(5), np.float64(6))


def test_no_elements_are_no_errors():
    assert check(np.zeros((0, 4)), np.zeros((0, 4))) == (0.0, 0.0)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
def test_integers_are_compared_exactly(dtype):
    good = np.array([0, 1, 100], dtype)
    assert check(good, good.copy()) == (0.0, 0.0)
    assert "worst at [2]: 101, expected 100, off by 1" in complaint(np.array([0, 1, 101], dtype), good)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
def test_the_extremes_of_an_integer_type_are_far_apart(dtype):
    low, high = np.array([np.iinfo(dtype).min], dtype), np.array([np.iinfo(dtype).max], dtype)
    assert "1 of 1 elements are off" in complaint(low, high)
    assert "1 of 1 elements are off" in complaint(high, low)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8"])
def test_the_smallest_integer_does_not_pass_for_zero(dtype):
    # It has no absolute value in its own type; and it is what processors make of a NaN that is turned into an integer.
    lowest = np.array([0, np.iinfo(dtype).min], dtype)
    assert "worst at [1]" in complaint(lowest, np.zeros(2, dtype))


def test_the_error_of_an_unsigned_integer_is_the_distance():
    message = complaint(np.array([5], np.uint8), np.array([6], np.uint8))
    assert message.endswith("off by 1")


def test_neighbouring_integers_too_large_for_a_float_are_different():
    complaint(np.array([2**60 + 1]), np.array([2**60]))


def test_truth_values_are_compared_too():
    yes, no = np.array([True, False]), np.array([True, True])
    assert check(yes, yes.copy()) == (0.0, 0.0)
    assert "worst at [1]" in complaint(yes, no)


def test_complex_numbers_are_compared_by_their_distance():
    assert check(np.array([0j]), np.array([3 + 4j]), typical=1.0) == (5.0, 1.0)
    complaint(np.array([0j]), np.array([3 + 4j]), typical=0.99)


@pytest.mark.parametrize("typical", [0.0, 0.1])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_complex_number_whose_size_overflows_hides_no_error_elsewhere(sign, typical):
    huge = 1.5e308 + 1.5e308j
    assert "2+0j, expected 1+0j" in complaint([sign * huge, 2.0], [huge, 1.0 + 0j], 0.5, typical=typical)


def test_nothing_is_changed():
    output, expected = floats(1.0, NAN), floats(1.5, NAN)
    check(output, expected, typical=1.0)
    np.testing.assert_array_equal(output, [1.0, NAN])
    np.testing.assert_array_equal(expected, [1.5, NAN])
