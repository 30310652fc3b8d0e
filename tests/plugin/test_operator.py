"""What an operator says about its parameters, phases and costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opmark.errors import InvalidParameter, UnknownName
from opmark.plugin import Implementation, Operator, ParamRule, Tolerance
from opmark.plugin.operator import growth, size_places, sum_of_products
from opmark.plugin.param import dtype, flag, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, INTS

FORWARD, BACKWARD = Cost(1, 2, 3), Cost(4, 5, 6)

TOY = Operator(
    name="toy",
    summary="for tests",
    category="test",
    params=(
        shape("shape", "shape of x"),
        size("k", "how many"),
        size("step", "every so many", 1),
        dtype(*FLOATS, *INTS),
    ),
    inputs=lambda p: {
        "x": TensorSpec(tuple(p["shape"]), p["dtype"]),
        "places": TensorSpec((p["k"],), "int64", 0, 4),
    },
    cost=lambda p: FORWARD,
    reference=lambda p, x, places: x,
    presets={"small": {"shape": [2, 2], "k": 1}, "large": {"shape": [64, 64], "k": 8}},
    implementations=(Implementation("numpy", lambda p: None), Implementation("torch", lambda p: None, "fast")),
    gradients=("x",),
    rules=(
        ParamRule("k", "be at most {shape} long (got {k})", lambda p: p["k"] <= p["shape"][-1]),
        ParamRule("step", "divide k={k} (got {step})", lambda p: p["k"] % p["step"] == 0),
    ),
)


def complete(**given):
    return TOY.complete({"shape": [4, 4], "k": 2, **given})


def test_defaults_are_written_out_in_the_order_of_declaration():
    found = TOY.complete({"dtype": "float16", "k": 2, "shape": [4, 4]})
    assert list(found.items()) == [("shape", [4, 4]), ("k", 2), ("step", 1), ("dtype", "float16")]


def test_a_given_value_is_above_the_default():
    assert complete(step=2)["step"] == 2


def test_a_parameter_that_was_added_later_is_in_a_case_only_where_it_is_not_the_default():
    """So older cases keep their ids."""
    newer = replace(TOY, params=(*TOY.params, flag("bias", "adds a vector", default=True, later=True)))
    given = {"shape": [4, 4], "k": 2}
    assert newer.complete(given) == newer.complete({**given, "bias": True}) == TOY.complete(given)
    assert newer.complete({**given, "bias": False}) == {**TOY.complete(given), "bias": False}
    assert size_places(newer, newer.complete(given)) == size_places(TOY, TOY.complete(given))


def test_everything_that_is_missing_is_named_at_once():
    with pytest.raises(InvalidParameter) as caught:
        TOY.complete({"step": 2})
    assert caught.value.message == "operator `toy` needs `shape`, `k`"
    assert "-p shape=... -p k=..." in caught.value.hint
    assert "`typical`" in caught.value.hint


def test_nothing_is_missing_where_the_rest_has_defaults():
    assert complete() == {"shape": [4, 4], "k": 2, "step": 1, "dtype": "float32"}


def test_completing_leaves_what_was_given_alone():
    given = {"shape": [4, 4], "k": 2}
    TOY.complete(given)
    assert given == {"shape": [4, 4], "k": 2}


def test_rules_that_hold_say_nothing():
    assert TOY.check_rules(complete(step=2)) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"k": 5}, "operator `toy`: parameter `k` must be at most [4, 4] long (got 5)"),
        ({"k": 3, "step": 2}, "operator `toy`: parameter `step` must divide k=3 (got 2)"),
    ],
)
def test_a_rule_names_the_parameter_to_blame_and_the_values(given, message):
    with pytest.raises(InvalidParameter) as caught:
        TOY.check_rules(complete(**given))
    assert caught.value.message == message


def test_the_first_broken_rule_is_the_one_that_is_named():
    with pytest.raises(InvalidParameter, match="parameter `k`"):
        TOY.check_rules(complete(k=5, step=2))


def test_a_parameter_is_found_by_name():
    assert TOY.param("step") is TOY.params[2]


def test_an_unknown_parameter_is_named_with_the_nearest_one():
    with pytest.raises(InvalidParameter) as caught:
        TOY.param("shpe")
    assert caught.value.message == "operator `toy` has no parameter `shpe`"
    assert caught.value.hint == "did you mean `shape`?"


def test_a_parameter_like_none_lists_those_there_are():
    with pytest.raises(InvalidParameter) as caught:
        TOY.param("zzz")
    assert caught.value.hint == "it has shape, k, step, dtype"


def test_a_preset_is_found_by_its_size():
    assert TOY.preset("large") == {"shape": [64, 64], "k": 8}


def test_an_unknown_size_is_named_with_the_nearest_one():
    with pytest.raises(UnknownName) as caught:
        TOY.preset("smal")
    assert caught.value.message == "no size of `toy` named `smal`"
    assert "did you mean `small`?" in caught.value.hint


def test_the_forward_phase_always_exists():
    without = replace(TOY, gradients=())
    assert without.why_no_phase(complete(dtype="int8"), "forward") is None


def test_an_operator_without_gradients_has_no_backward_phase():
    assert replace(TOY, gradients=()).why_no_phase(complete(), "backward") == "`toy` has no gradient"


@pytest.mark.parametrize("name", FLOATS)
def test_a_floating_point_type_has_a_backward_phase(name):
    assert TOY.why_no_phase(complete(dtype=name), "backward") is None


@pytest.mark.parametrize("name", INTS)
def test_there_is_no_gradient_through_integers(name):
    assert TOY.why_no_phase(complete(dtype=name), "backward") == f"`toy` has no gradient through {name}"


def test_there_is_no_gradient_through_an_integer_result():
    cast = replace(TOY, result_dtype=lambda p: "int32")
    assert cast.why_no_phase(complete(), "backward") == "`toy` has no gradient through int32"


def test_an_integer_input_without_a_gradient_does_not_matter():
    assert TOY.why_no_phase(complete(), "backward") is None
    with_places = replace(TOY, gradients=("x", "places"))
    assert with_places.why_no_phase(complete(), "backward") == "`toy` has no gradient through int64"


def test_each_phase_has_its_own_cost():
    both = replace(TOY, backward_cost=lambda p: BACKWARD)
    assert both.phase_cost(complete(), "forward") == FORWARD
    assert both.phase_cost(complete(), "backward") == BACKWARD


def test_a_step_costs_both_phases() -> None:
    both = replace(TOY, backward_cost=lambda p: BACKWARD)
    assert both.phase_cost(complete(), "both") == FORWARD + BACKWARD == Cost(5, 7, 9)
    assert TOY.phase_cost(complete(), "both") is None


@pytest.mark.parametrize("phase", ["backward", "both"])
def test_the_cost_of_some_gradients_is_unknown(phase) -> None:
    both = replace(TOY, backward_cost=lambda p: BACKWARD)
    assert both.phase_cost(complete(), phase, ("x",)) is None
    assert both.phase_cost(complete(), "forward", ("x",)) == FORWARD


def test_a_step_exists_where_a_backward_phase_does() -> None:
    assert TOY.why_no_phase(complete(), "both") is None
    assert replace(TOY, gradients=()).why_no_phase(complete(), "both") == "`toy` has no gradient"


def test_a_cost_that_nobody_has_written_is_unknown_and_not_zero():
    assert TOY.phase_cost(complete(), "backward") is None


def test_implementations_are_found_by_framework():
    assert [i.framework for i in TOY.implementations_for("torch")] == ["torch"]
    assert TOY.implementations_for("jax") == ()


def test_an_implementation_is_labelled_by_its_name_or_else_its_framework():
    assert [i.label for i in TOY.implementations] == ["numpy", "fast"]


def test_tolerance_grows_with_the_root_of_the_number_of_terms():
    one = Tolerance().bounds("float32", {})
    many = Tolerance(terms=lambda p: p["K"]).bounds("float32", {"K": 400})
    assert one[0] == one[1] == many[0]
    assert many[1] == pytest.approx(20 / 8 * one[1])  # slow growth: sums have more digits than results


def test_no_terms_count_as_one():
    assert Tolerance(terms=lambda p: 0).bounds("float32", {}) == Tolerance().bounds("float32", {})


@pytest.mark.parametrize(("terms", "factor"), [(0, 1.0), (1, 1.0), (64, 1.0), (100, 1.25), (6400, 10.0)])
def test_errors_grow_slowly_and_only_in_long_sums(terms, factor):
    assert growth(terms) == factor


def test_the_magnitude_of_results_is_unknown_unless_said():
    assert Tolerance().magnitude({}) == 0.0


def test_a_sum_of_products_is_as_large_as_its_number_of_terms_makes_it():
    tolerance = sum_of_products(lambda p: p["K"])
    assert tolerance.terms({"K": 900}) == 900
    generator = np.random.default_rng(0)
    a, b = generator.uniform(-1, 1, (400, 900)), generator.uniform(-1, 1, (900, 400))
    assert tolerance.magnitude({"K": 900}) == pytest.approx(np.sqrt(np.square(a @ b).mean()), rel=0.02)


def test_a_factor_widens_both_bounds():
    plain, wide = Tolerance().bounds("float32", {}), Tolerance(factor=8).bounds("float32", {})
    assert wide == (8 * plain[0], 8 * plain[1])


def test_a_type_with_fewer_digits_has_more_tolerance():
    relative = [Tolerance().bounds(name, {})[0] for name in ("float64", "float32", "float16", "bfloat16")]
    assert relative == sorted(relative)
    assert all(0 < bound < 0.1 for bound in relative)


@pytest.mark.parametrize("name", INTS)
def test_integers_are_exact(name):
    assert Tolerance(terms=lambda p: 1000).bounds(name, {}) == (0.0, 0.0)
