"""batch_norm, group_norm, instance_norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from opmark.catalogue.operators.channel_norm import BATCH_NORM, GROUP_NORM, INSTANCE_NORM
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-3, 3, (4, 6, 5))
WEIGHT, BIAS, MEAN, VAR = GENERATOR.uniform(0.5, 1.5, (4, 6))
SHAPE = {"shape": [2, 3, 4], "dtype": "float32"}

COSTS = [
    # 24 elements and 4 vectors of 3 in; 24 elements and both running statistics out.
    (BATCH_NORM, SHAPE, Cost(168, 144, 120), Cost(216, 204, 120)),
    # Given statistics: a product and a sum. Back: both statistics are read beside x, the gradient and the weight.
    (BATCH_NORM, {**SHAPE, "training": False}, Cost(48, 144, 96), Cost(144, 228, 120)),
    (GROUP_NORM, {**SHAPE, "groups": 3}, Cost(168, 120, 96), Cost(216, 204, 120)),
    (INSTANCE_NORM, {**SHAPE, "dtype": "float64"}, Cost(168, 240, 192), Cost(216, 408, 240)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


def _batch_norm(**given: Any) -> Any:
    params = BATCH_NORM.complete({"shape": list(X.shape), **given})
    return BATCH_NORM.reference(params, x=X, weight=WEIGHT, bias=BIAS, running_mean=MEAN, running_var=VAR)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 1.0])
def test_training_updates_the_running_statistics_as_torch_does(momentum: float) -> None:
    x, weight, bias, mean, var = (torch.from_numpy(a.copy()) for a in (X, WEIGHT, BIAS, MEAN, VAR))
    expected = functional.batch_norm(x, mean, var, weight, bias, True, momentum, 1e-3)
    for found, due in zip(_batch_norm(momentum=momentum, eps=1e-3), (expected, mean, var), strict=True):
        np.testing.assert_allclose(found, due, rtol=1e-12, atol=1e-14)


def test_inference_uses_the_running_statistics() -> None:
    x, weight, bias, mean, var = (torch.from_numpy(a) for a in (X, WEIGHT, BIAS, MEAN, VAR))
    expected = functional.batch_norm(x, mean, var, weight, bias)
    np.testing.assert_allclose(_batch_norm(training=False), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_only_training_changes_the_running_statistics(framework: str, training: bool, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    params = BATCH_NORM.complete({"shape": [5, 3, 7], "training": training})
    inputs = {name: live.tensor(spec, i) for i, (name, spec) in enumerate(BATCH_NORM.inputs(params).items())}
    before = {name: np.array(live.to_numpy(tensor)) for name, tensor in inputs.items()}
    BATCH_NORM.implementations_for(framework)[0].build(params, **inputs)()
    changed = {name for name in inputs if (live.to_numpy(inputs[name]) != before[name]).any()}
    assert changed == (set(BATCH_NORM.mutates) if training else set())


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_statistics_of_a_thousand_steps_are_those_of_the_batch(framework: str, request: Any) -> None:
    """A launch is timed many times, so values that it changes have to converge."""
    live = request.getfixturevalue(f"{framework}_cpu")
    params = BATCH_NORM.complete({"shape": [5, 3, 7]})
    inputs = {name: live.tensor(spec, i) for i, (name, spec) in enumerate(BATCH_NORM.inputs(params).items())}
    launch = BATCH_NORM.implementations_for(framework)[0].build(params, **inputs)
    for _ in range(1000):
        launch()
    x = live.to_numpy(inputs["x"])
    np.testing.assert_allclose(live.to_numpy(inputs["running_mean"]), x.mean(axis=(0, 2)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(live.to_numpy(inputs["running_var"]), x.var(axis=(0, 2), ddof=1), rtol=1e-4)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_the_reference_of_group_norm_is_that_of_torch(groups: int) -> None:
    x, weight, bias = (torch.from_numpy(a) for a in (X, WEIGHT, BIAS))
    found = GROUP_NORM.reference({"groups": groups, "eps": 0.1}, x=X, weight=WEIGHT, bias=BIAS)
    np.testing.assert_allclose(found, functional.group_norm(x, groups, weight, bias, 0.1), rtol=1e-12, atol=1e-14)


def test_instance_norm_has_a_group_for_each_channel() -> None:
    found = INSTANCE_NORM.reference({"shape": [4, 6, 5], "eps": 0.1}, x=X, weight=WEIGHT, bias=BIAS)
    expected = GROUP_NORM.reference({"groups": 6, "eps": 0.1}, x=X, weight=WEIGHT, bias=BIAS)
    assert (found == expected).all()


@pytest.mark.parametrize(
    ("op", "given", "param"),
    [
        (BATCH_NORM, {"shape": [7]}, "shape"),
        (BATCH_NORM, {"shape": [1, 64]}, "shape"),
        (BATCH_NORM, {"shape": [8, 3], "momentum": 1.1}, "momentum"),
        (GROUP_NORM, {"shape": [2, 6, 5], "groups": 4}, "groups"),
        (GROUP_NORM, {"shape": [2, 6], "groups": 3}, "groups"),
        (INSTANCE_NORM, {"shape": [2, 6]}, "shape"),
        (INSTANCE_NORM, {"shape": [2, 6, 3]}, "shape"),
    ],
)
def test_what_cannot_be_normalised_is_refused(op: Operator, given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        op.check_rules(op.complete(given))


@pytest.mark.parametrize(
    ("alias", "name"), [("BatchNorm", "batch_norm"), ("GroupNorm", "group_norm"), ("InstanceNorm", "instance_norm")]
)
def test_names_of_other_systems_are_found(alias: str, name: str) -> None:
    assert operator(alias).name == name
