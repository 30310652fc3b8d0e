"""layer_norm, rms_norm, moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.normalization import LAYER_NORM, MOMENTS, RMS_NORM
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-3, 3, (4, 5, 6))
WEIGHT, BIAS = GENERATOR.uniform(0.5, 1.5, (2, 6))

COSTS = [
    # 12 elements and two vectors of 4 in. Back: x, its gradient and the weight in; three gradients out.
    (LAYER_NORM, {"shape": [3, 4], "dtype": "float32"}, Cost(84, 80, 48), Cost(144, 112, 80)),
    (LAYER_NORM, {"shape": [3, 4], "dtype": "float32", "bias": False}, Cost(72, 64, 48), Cost(132, 112, 64)),
    # 12 elements and one vector of 4 in. Back: x, its gradient and the weight in; two gradients out.
    (RMS_NORM, {"shape": [3, 4], "dtype": "float64"}, Cost(48, 128, 96), Cost(108, 224, 128)),
    # 12 elements in, one variance and one mean out. Back: x, both gradients and the mean in.
    (MOMENTS, {"shape": [3, 4], "dtype": "float32"}, Cost(48, 48, 8), Cost(36, 60, 48)),
    (MOMENTS, {"shape": [3, 4], "axes": 1, "dtype": "float32"}, Cost(48, 48, 24), Cost(36, 84, 48)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


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


@pytest.mark.parametrize("op", [LAYER_NORM, RMS_NORM], ids=lambda op: op.name)
def test_a_negative_eps_is_refused(op: Operator) -> None:
    """The root of a negative number is NaN, in the reference too, so that NaN would pass."""
    assert op.param("eps").check(0.0) == 0
    with pytest.raises(InvalidParameter, match="parameter `eps`"):
        op.param("eps").check(-1.0)


@pytest.mark.parametrize(("axes", "dims"), [(0, (0, 1, 2)), (1, (2,)), (2, (1, 2)), (3, (0, 1, 2))])
def test_moments_are_variance_and_mean_along_the_last_axes(axes: int, dims: tuple[int, ...]) -> None:
    params = MOMENTS.complete({"shape": [4, 5, 6], "axes": axes})
    for found, expected in zip(
        MOMENTS.reference(params, x=X), torch.var_mean(torch.from_numpy(X), dims, correction=0), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "param"), [({"shape": [3, 4], "axes": 3}, "axes"), ({"shape": [3, 1], "axes": 1}, "shape")]
)
def test_moments_of_axes_that_are_not_there_or_of_one_element_are_refused(given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        MOMENTS.check_rules(MOMENTS.complete(given))


@pytest.mark.parametrize(("alias", "name"), [("LayerNorm", "layer_norm"), ("layernorm", "layer_norm")])
def test_names_of_other_systems_are_found(alias: str, name: str) -> None:
    assert operator(alias).name == name
