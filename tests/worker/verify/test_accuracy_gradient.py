"""Gradients against the change of the reference: what passes, and that every kind of mistake does not."""

from __future__ import annotations

import numpy as np
import pytest

from opmark.errors import WrongResult
from opmark.worker.verify.accuracy import any_direction, check_gradients

FLOAT16, FLOAT32, FLOAT64 = 2e-3, 1e-5, 1e-12


def product(inputs):
    """a times the sine of b, element by element, and the sum of a."""
    return inputs["a"] * np.sin(inputs["b"]), inputs["a"].sum()


@pytest.fixture
def case():
    """(inputs, gradients of the outputs, right gradients of the inputs)."""
    generator = np.random.default_rng(7)
    a, b, seed = generator.uniform(0.5, 1.5, (3, 20, 50))
    seeds = [seed, np.float64(0.25)]
    right = {"a": seed * np.sin(b) + 0.25, "b": seed * a * np.cos(b)}
    return {"a": a, "b": b}, seeds, right


def complaint(case, wrong: dict, relative: float = FLOAT32) -> str:
    inputs, seeds, right = case
    with pytest.raises(WrongResult) as caught:
        check_gradients(product, inputs, {**right, **wrong}, seeds, relative)
    return caught.value.message


@pytest.mark.parametrize("relative", [FLOAT64, FLOAT32, 1.6e-2])
def test_a_right_gradient_passes(case, relative):
    inputs, seeds, right = case
    found = check_gradients(product, inputs, right, seeds, relative)
    assert 0 <= found.max_rel < 1e-7
    assert 0 <= found.max_abs < 1e-5


def test_a_right_gradient_with_the_rounding_of_float32_passes(case):
    inputs, seeds, right = case
    rounded = {name: array.astype(np.float32).astype(np.float64) for name, array in right.items()}
    found = check_gradients(product, inputs, rounded, seeds, FLOAT32)
    assert found.max_rel > 1e-9, "the rounding is seen"


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize(
    "mistake",
    [
        lambda g: -g,
        lambda g: 2 * g,
        lambda g: g / g.size,
        lambda g: np.zeros_like(g),
        lambda g: g + 0.1,
        lambda g: g.T.reshape(g.shape),
        lambda g: g * 1.001,
    ],
    ids=["sign", "factor", "mean for sum", "zero", "offset", "transposed", "a thousandth"],
)
def test_a_wrong_gradient_is_found_and_named(case, mistake, name):
    message = complaint(case, {name: mistake(case[2][name])})
    assert message.startswith(f"gradient of `{name}`: its sum along a direction is ")


@pytest.mark.parametrize("place", [(0, 0), (7, 31), (19, 49)])
@pytest.mark.parametrize("change", [-1.0, 0.01])
def test_one_wrong_element_of_a_thousand_is_found(case, place, change):
    wrong = case[2]["b"].copy()
    wrong[place] += change
    complaint(case, {"b": wrong})


def test_the_tolerance_is_that_of_the_element_type(case):
    nearly = {"b": case[2]["b"] * (1 + 1e-3)}
    complaint(case, nearly, FLOAT32)
    inputs, seeds, right = case
    check_gradients(product, inputs, {**right, **nearly}, seeds, 1.6e-2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_is_wrong(case, value):
    wrong = case[2]["a"].copy()
    wrong[3, 3] = value
    assert complaint(case, {"a": wrong}) == "gradient of `a` is not finite everywhere"


def test_a_gradient_of_another_shape_is_wrong(case):
    wrong = case[2]["b"].T
    assert complaint(case, {"b": wrong}) == "gradient of `b` has shape (50, 20), expected (20, 50)"


def test_the_message_has_both_sums_the_error_and_what_is_allowed(case):
    message = complaint(case, {"a": np.zeros_like(case[2]["a"])})
    assert "direction is 0, the reference changes by " in message
    assert "; off by " in message
    assert ", allowed " in message


def test_an_output_without_a_gradient_counts_for_nothing(case):
    inputs, (seed, _), right = case
    check_gradients(product, inputs, {"a": right["a"] - 0.25, "b": right["b"]}, [seed, None], FLOAT32)
    with pytest.raises(WrongResult):
        check_gradients(product, inputs, right, [seed, None], FLOAT32)


def test_an_input_that_nothing_depends_on_has_a_gradient_of_zero(case):
    inputs, seeds, _ = case
    unused = {**inputs, "c": np.ones(4)}
    found = check_gradients(product, unused, {"c": np.zeros(4)}, seeds, FLOAT64)
    assert found == (0.0, 0.0)
    with pytest.raises(WrongResult, match="gradient of `c`"):
        check_gradients(product, unused, {"c": np.full(4, 1e-3)}, seeds, FLOAT64)


def test_inputs_are_left_as_they_were(case):
    inputs, seeds, right = case
    before = {name: array.copy() for name, array in inputs.items()}
    check_gradients(product, inputs, right, seeds, FLOAT32)
    assert all((inputs[name] == before[name]).all() for name in inputs)


def test_the_same_question_gets_the_same_answer(case):
    inputs, seeds, right = case
    answers = {check_gradients(product, inputs, right, seeds, FLOAT32) for _ in range(3)}
    assert len(answers) == 1


def test_every_element_goes_its_own_way_by_one():
    way = any_direction("x", np.random.default_rng(0), np.zeros((40, 40)))
    assert way.shape == (40, 40)
    assert set(np.unique(way)) == {-1.0, 1.0}
    assert abs(way.mean()) < 0.1


def test_a_direction_of_the_operators_own_is_the_one_taken(case):
    inputs, seeds, right = case
    asked = []

    def only_the_first(name, generator, array):
        asked.append(name)
        way = np.zeros_like(array)
        way.flat[0] = 1.0
        return way

    beside = right["b"].copy()
    beside.flat[1] += 5.0
    check_gradients(product, inputs, {**right, "b": beside}, seeds, FLOAT32, only_the_first)
    assert set(asked) == {"a", "b"}
    hit = right["b"].copy()
    hit.flat[0] += 5.0
    with pytest.raises(WrongResult, match="gradient of `b`"):
        check_gradients(product, inputs, {**right, "b": hit}, seeds, FLOAT32, only_the_first)


def test_several_directions_are_taken(case):
    # Two mistakes that cancel along one of them show along another.
    inputs, seeds, right = case
    taken = []

    def noted(name, generator, array):
        taken.append(any_direction(name, generator, array))
        return taken[-1]

    check_gradients(product, inputs, {"a": right["a"]}, seeds, FLOAT32, noted)
    assert len({way.tobytes() for way in taken}) >= 2


def test_errors_inside_the_tolerance_pass_even_where_they_all_add_up():
    x = np.zeros(10_000)
    found = check_gradients(
        lambda i: (i["x"].sum(),), {"x": x}, {"x": np.full(10_000, 1 + 0.4e-5)}, [np.float64(1)], FLOAT32,
        lambda name, generator, array: np.ones_like(array),
    )  # fmt: skip
    assert found.max_abs == pytest.approx(0.04, rel=1e-3)


def test_rounding_passes_where_the_terms_cancel():
    half = np.repeat([1.0, -1.0], 5000)
    noise = 1e-6 * np.random.default_rng(0).standard_normal(10_000)
    found = check_gradients(
        lambda i: (i["x"].sum(),), {"x": np.zeros(10_000)}, {"x": 1 + noise}, [np.float64(1)], FLOAT32,
        lambda name, generator, array: half,
    )  # fmt: skip
    assert found.max_abs > 1e-6


def test_a_function_with_edges_needs_a_direction_along_them():
    # The largest of two nearly equal elements: one step may change which one that is.
    x, seed = np.array([[1.0, 1.0 + 1e-7], [3.0, 2.0]]), np.array([1.0, 1.0])
    right = {"x": np.array([[0.0, 1.0], [1.0, 0.0]])}

    def by_row(name, generator, array):
        return np.broadcast_to(generator.choice((-1.0, 1.0), size=(2, 1)), array.shape)

    def largest(inputs):
        return (inputs["x"].max(axis=1),)

    check_gradients(largest, {"x": x}, right, [seed], FLOAT32, by_row)
    with pytest.raises(WrongResult):
        check_gradients(largest, {"x": x}, right, [seed], FLOAT32)


@pytest.mark.parametrize("relative", [FLOAT64, FLOAT32])
def test_a_right_gradient_passes_where_the_function_bends_strongly(relative):
    # As in a normalisation over few elements: almost a step at zero, three thousandths wide.
    eps = 1e-5
    generator = np.random.default_rng(3)
    x, seed = generator.uniform(-1, 1, 4096), generator.uniform(-1, 1, 4096)
    right = {"x": seed * eps / (x * x + eps) ** 1.5}
    found = check_gradients(lambda i: (i["x"] / np.sqrt(i["x"] ** 2 + eps),), {"x": x}, right, [seed], relative)
    assert found.max_rel < 1e-4


def test_a_gradient_added_up_in_short_numbers_passes_and_a_wrong_one_still_does_not():
    # As frameworks add up the gradient of a weight over all rows, in its own element type.
    generator = np.random.default_rng(5)
    x, seed = (generator.uniform(-1, 1, (4096, 32)).astype(np.float16) for _ in range(2))
    terms = x * seed
    added = np.zeros(32, np.float16)
    for row in terms:
        added += row
    inputs = {"x": x.astype(np.float64), "w": np.ones(32)}

    def scaled(inputs):
        return (inputs["x"] * inputs["w"],)

    def check(gradient):
        return check_gradients(scaled, inputs, {"w": gradient}, [seed.astype(np.float64)], FLOAT16)

    rounded = added.astype(np.float64)
    assert check(rounded).max_abs > 0
    for wrong in (-rounded, 2 * rounded, rounded / 32, np.where(np.arange(32) == 7, 0.0, rounded)):
        with pytest.raises(WrongResult):
            check(wrong)


# Gradients of means are small beside their value, and 16 bits leave room for a factor of 1.02 all the same.

BFLOAT16 = 1.6e-2


@pytest.fixture
def mean():
    """A mean of squares of 4,096 elements around 1, rounded to 8 bits, and its right gradient."""
    x = np.random.default_rng(3).uniform(0.5, 1.5, 4096)
    return {"x": x}, [np.float64(0.75)], _to_8_bits(0.75 * 2 * x / x.size)


def _to_8_bits(array: np.ndarray) -> np.ndarray:
    scale = 2.0 ** (np.floor(np.log2(np.abs(array))) - 7)
    return np.round(array / scale) * scale


def mean_of_squares(inputs):
    return (np.square(inputs["x"]).mean(),)


def test_a_right_gradient_of_a_mean_passes_in_16_bits(mean):
    inputs, seeds, right = mean
    check_gradients(mean_of_squares, inputs, {"x": right}, seeds, BFLOAT16)


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.5, 1.1, 1.02, 0.98])
def test_a_wrong_gradient_of_a_mean_is_found_in_16_bits(mean, factor):
    inputs, seeds, right = mean
    with pytest.raises(WrongResult, match="gradient of `x`"):
        check_gradients(mean_of_squares, inputs, {"x": factor * right}, seeds, BFLOAT16)


def test_a_gradient_that_is_too_large_in_one_half_and_too_small_in_the_other_is_found(mean):
    inputs, seeds, right = mean
    halves = np.where(np.arange(right.size) < right.size / 2, 1.05, 0.95)
    with pytest.raises(WrongResult):
        check_gradients(mean_of_squares, inputs, {"x": halves * right}, seeds, BFLOAT16)


def test_a_gradient_below_the_smallest_number_of_its_type_may_be_zero(mean):
    inputs, seeds, right = mean
    check_gradients(mean_of_squares, inputs, {"x": np.zeros_like(right)}, [1e-6 * seeds[0]], FLOAT16, spacing=2.0**-24)
    with pytest.raises(WrongResult):
        check_gradients(mean_of_squares, inputs, {"x": np.zeros_like(right)}, seeds, FLOAT16, spacing=2.0**-24)


def test_more_is_allowed_where_a_formula_loses_digits(mean):
    inputs, seeds, right = mean
    noisy = {"x": right * (1 + 0.3 * np.random.default_rng(1).standard_normal(right.size))}
    check_gradients(mean_of_squares, inputs, noisy, seeds, BFLOAT16, factor=40.0)
    with pytest.raises(WrongResult):
        check_gradients(mean_of_squares, inputs, noisy, seeds, BFLOAT16)
