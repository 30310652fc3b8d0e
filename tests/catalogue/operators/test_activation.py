"""relu, gelu, silu, sigmoid and similar functions, shrinks; prelu."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.activation import (
    CELU,
    GATED_OPERATORS,
    GELU,
    HARDSHRINK,
    HARDTANH,
    LEAKY_RELU,
    OPERATORS,
    PRELU,
    RELU,
    SELU,
    SIGMOID,
    SOFTPLUS,
    THRESHOLD,
)
from opmark.errors import InvalidParameter
from opmark.plugin import Operator  # fmt: skip
from opmark.plugin.registry import operator
from opmark.schema import Cost

X = np.linspace(-8, 8, 65).reshape(5, 13)
SIX = {"shape": [2, 3]}

# (operator, parameters, forward, backward); counted by hand for six elements.
COSTS = [
    # A comparison is not counted; backwards the gradient and x are read.
    (RELU, {**SIX, "dtype": "float32"}, Cost(0, 24, 24), Cost(0, 48, 24)),
    (LEAKY_RELU, {**SIX, "dtype": "float16"}, Cost(6, 12, 12), Cost(6, 24, 12)),
    # Exponential, sum, quotient. Backwards: the output, one minus it, the gradient.
    (SIGMOID, {**SIX, "dtype": "float64"}, Cost(18, 48, 48), Cost(18, 96, 48)),
    # Scale, erf, add, half, product: 5. Backwards: the gradient and x.
    (GELU, {**SIX, "dtype": "float32"}, Cost(30, 24, 24), Cost(54, 48, 24)),
    (GELU, {**SIX, "dtype": "float16", "approximate": "tanh"}, Cost(30, 12, 12), Cost(54, 24, 12)),
    # Three slopes are read too, and have a gradient: 6 products for x, 6 and as many sums for them.
    (PRELU, {**SIX, "dtype": "float32"}, Cost(6, 36, 24), Cost(18, 60, 36)),
]

# Parameters by name under which each function reaches all its branches.
UNUSUAL: dict[str, dict[str, Any]] = {
    "leaky_relu": {"negative_slope": 0.3},
    "elu": {"alpha": 0.7},
    "celu": {"alpha": 2.0},
    "softplus": {"beta": 4.0},
    "hardtanh": {"min_val": -0.3, "max_val": 2.1},
    "softshrink": {"lambd": 0.3},
    "hardshrink": {"lambd": 0.3},
    "threshold": {"threshold": -0.3, "value": 7.0},
}


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize("op", [op for op in OPERATORS if op not in (PRELU, *GATED_OPERATORS)], ids=lambda op: op.name)
def test_the_reference_is_that_of_torch_far_out_on_both_sides(op: Operator) -> None:
    params = op.complete({"shape": list(X.shape), "dtype": "float64", **UNUSUAL.get(op.name, {})})
    expected = op.implementations_for("torch")[0].build(params, x=torch.from_numpy(X))()
    np.testing.assert_allclose(op.reference(params, x=X), expected, rtol=1e-12, atol=1e-15)


def test_the_two_kinds_of_gelu_differ() -> None:
    exact, tanh = (GELU.reference({"approximate": kind}, x=X) for kind in ("none", "tanh"))
    assert 1e-5 < np.abs(exact - tanh).max() < 1e-3


def test_selu_keeps_mean_zero_and_variance_one() -> None:
    normal = np.random.default_rng(0).normal(size=1_000_000)
    found = SELU.reference({}, x=normal)
    assert abs(found.mean()) < 5e-3
    assert abs(found.var() - 1) < 5e-3


def test_prelu_has_a_slope_for_each_channel() -> None:
    x = -np.ones((1, 3, 2))
    found = PRELU.reference({}, x=x, weight=np.array([0.1, 0.2, 0.3]))
    assert found.tolist() == [[[-0.1, -0.1], [-0.2, -0.2], [-0.3, -0.3]]]


def test_softplus_of_a_large_number_does_not_overflow() -> None:
    assert SOFTPLUS.reference({"beta": 1.0}, x=np.array([1e4])).tolist() == [1e4]


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_relu_of_integers_sees_negative_ones(dtype: str, numpy_cpu: Any) -> None:
    params = RELU.complete({"shape": [100], "dtype": dtype})
    x = numpy_cpu.tensor(RELU.inputs(params)["x"], 0)
    found = RELU.implementations_for("numpy")[0].build(params, x=x)()
    assert x.min() < 0
    assert found.min() == 0
    assert found.max() == x.max()


@pytest.mark.parametrize("given", [{"lambd": 0.5}, {"lambd": 0.3}, {"lambd": 0.0}, {"lambd": 4.99}, {"lambd": 77.0}])
def test_no_element_lies_where_hardshrink_jumps(given: dict[str, float]) -> None:
    spec = HARDSHRINK.inputs(HARDSHRINK.complete({"shape": [100, 100], **given}))["x"]
    assert spec.make
    x = spec.make(np.random.default_rng(0))
    assert np.abs(np.abs(x) - given["lambd"]).min() > 1e-3
    assert np.abs(x).max() <= spec.high
    assert (np.abs(x) > given["lambd"]).sum() > 0


def test_the_jump_of_threshold_is_left_alone_wherever_it_is() -> None:
    spec = THRESHOLD.inputs(THRESHOLD.complete({"shape": [100, 100], "threshold": -0.7}))["x"]
    assert spec.make
    assert np.abs(spec.make(np.random.default_rng(0)) + 0.7).min() > 1e-3


@pytest.mark.parametrize(
    ("op", "given", "param"),
    [
        (CELU, {"alpha": 0.0}, "alpha"),
        (SOFTPLUS, {"beta": 0.0}, "beta"),
        (HARDTANH, {"min_val": 1.0, "max_val": 1.0}, "max_val"),
        (PRELU, {"shape": [7]}, "shape"),
    ],
)
def test_what_cannot_be_is_refused(op: Operator, given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        op.check_rules(op.complete({**SIX, **given}))


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("Activation", "relu"), ("LeakyReLU", "leaky_relu"), ("LeakyRelu", "leaky_relu"), ("PRelu", "prelu"),
        ("Sigmoid", "sigmoid"), ("Elu", "elu"), ("Selu", "selu"), ("Swish", "silu"), ("swish", "silu"),
        ("softrelu", "softplus"), ("hardsigmoid", "hard_sigmoid"), ("logsigmoid", "log_sigmoid"),
    ],
)  # fmt: skip
def test_names_of_other_systems_are_found(alias: str, name: str) -> None:
    assert operator(alias).name == name
