"""softmax, layer_norm, rms_norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.errors import InvalidParameter
from opmark.operators.normalization import LAYER_NORM, RMS_NORM, SOFTMAX
from opmark.schema import Cost, Operator

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-3, 3, (4, 5, 6))
WEIGHT, BIAS = GENERATOR.uniform(0.5, 1.5, (2, 6))

COSTS = [
    # 12 elements. Maximum, difference, exponential, sum, quotient: 5 an element. Back: the gradient and the output in.
    (SOFTMAX, {"shape": [3, 4], "dtype": "float32"}, Cost(60, 48, 48), Cost(48, 96, 48)),
    (SOFTMAX, {"shape": [3, 4], "axis": 0, "dtype": "float16"}, Cost(60, 24, 24), Cost(48, 48, 24)),
    # 12 elements and two vectors of 4 in. Back: x, its gradient and the weight in; three gradients out.
    (LAYER_NORM, {"shape": [3, 4], "dtype": "float32"}, Cost(84, 80, 48), Cost(144, 112, 80)),
    # 12 elements and one vector of 4 in. Back: x, its gradient and the weight in; two gradients out.
    (RMS_NORM, {"shape": [3, 4], "dtype": "float64"}, Cost(48, 128, 96), Cost(108, 224, 128)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize("axis", range(-3, 3))
def test_the_reference_of_softmax_is_that_of_torch_on_every_axis(axis: int) -> None:
    expected = torch.softmax(torch.from_numpy(X), axis)
    np.testing.assert_allclose(SOFTMAX.reference({"axis": axis}, x=X), expected, rtol=1e-13)


def test_softmax_of_large_numbers_does_not_overflow() -> None:
    assert SOFTMAX.reference({"axis": 0}, x=np.array([1e4, 1e4])).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_the_reference_of_layer_norm_is_that_of_torch(eps: float) -> None:
    x, weight, bias = (torch.from_numpy(array) for array in (X, WEIGHT, BIAS))
    expected = torch.nn.functional.layer_norm(x, (6,), weight, bias, eps)
    found = LAYER_NORM.reference({"eps": eps}, x=X, weight=WEIGHT, bias=BIAS)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_the_reference_of_rms_norm_is_that_of_torch(eps: float) -> None:
    expected = torch.nn.functional.rms_norm(torch.from_numpy(X), (6,), torch.from_numpy(WEIGHT), eps)
    np.testing.assert_allclose(RMS_NORM.reference({"eps": eps}, x=X, weight=WEIGHT), expected, rtol=1e-12)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("op", [LAYER_NORM, RMS_NORM], ids=lambda op: op.name)
def test_an_implementation_uses_the_eps_that_was_asked_for(op: Operator, framework: str, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    (implementation,) = op.implementations_for(framework)
    params = op.complete({"shape": [3, 5], "eps": 10.0})
    inputs = {name: live.tensor(spec, 0) for name, spec in op.inputs(params).items()}
    found = live.to_numpy(implementation.build(params, **inputs)())
    expected = op.reference(params, **{name: live.to_numpy(tensor) for name, tensor in inputs.items()})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", [LAYER_NORM, RMS_NORM], ids=lambda op: op.name)
def test_vectors_are_as_long_as_the_last_axis(op: Operator) -> None:
    specs = op.inputs(op.complete({"shape": [2, 3, 5]}))
    assert {spec.shape for name, spec in specs.items() if name != "x"} == {(5,)}
    assert specs["x"].shape == (2, 3, 5)


@pytest.mark.parametrize("axis", [-2, -1, 0, 1])
def test_an_axis_that_exists_is_allowed(axis: int) -> None:
    SOFTMAX.check_rules(SOFTMAX.complete({"shape": [2, 3], "axis": axis}))


@pytest.mark.parametrize("axis", [-3, 2])
def test_an_axis_that_does_not_exist_is_refused(axis: int) -> None:
    with pytest.raises(InvalidParameter, match=rf"parameter `axis` must .*\[2, 3\] \(got {axis}\)"):
        SOFTMAX.check_rules(SOFTMAX.complete({"shape": [2, 3], "axis": axis}))


@pytest.mark.parametrize("op", [LAYER_NORM, RMS_NORM], ids=lambda op: op.name)
def test_a_negative_eps_is_refused(op: Operator) -> None:
    """The root of a negative number is not a number, in the reference too, so that any result would pass."""
    assert op.param("eps").check(0.0) == 0
    with pytest.raises(InvalidParameter, match="parameter `eps`"):
        op.param("eps").check(-1.0)
