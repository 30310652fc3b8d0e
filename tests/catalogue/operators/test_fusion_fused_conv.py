"""conv_relu, conv_bn, conv_bn_relu."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import batch_norm, conv2d, relu

from opmark.catalogue.operators.fusion import FUSED_CONV_OPERATORS
from opmark.errors import InvalidParameter, Unsupported
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

CONV_RELU, CONV_BN, CONV_BN_RELU = FUSED_CONV_OPERATORS
SIZES: dict[str, Any] = {"batch": 2, "in_channels": 3, "image": [6, 5], "out_channels": 4, "kernel": [3, 2]}
STRIDED: dict[str, Any] = {**SIZES, "stride": 2, "padding": 1}


def made(op: Operator, live: Any, seed: int, **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    params = op.complete({**STRIDED, "dtype": "float64", **given})
    return params, {name: live.tensor(spec, seed) for name, spec in op.inputs(params).items()}


def test_cost_by_hand() -> None:
    # 2 x 4 x 4 x 4 results of 18 products, and a sum each; x, weights and biases in.
    params = CONV_RELU.complete({**SIZES, "padding": 0})
    assert CONV_RELU.cost(params) == Cost(128 * 37, (180 + 72 + 4) * 4, 512)
    # Four vectors of statistics instead of one of biases.
    assert CONV_BN.cost(CONV_BN.complete({**SIZES, "padding": 0})) == Cost(128 * 37, (180 + 72 + 16) * 4, 512)


def test_the_reference_of_conv_relu_is_that_of_torch(torch_cpu: Any) -> None:
    params, inputs = made(CONV_RELU, torch_cpu, 0)
    expected = relu(conv2d(**{"input" if n == "x" else n: t for n, t in inputs.items()}, stride=2, padding=1))
    found = CONV_RELU.reference(params, **{name: tensor.numpy() for name, tensor in inputs.items()})
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", [CONV_BN, CONV_BN_RELU], ids=lambda op: op.name)
def test_the_reference_normalises_as_torch_does(op: Operator, torch_cpu: Any) -> None:
    params, inputs = made(op, torch_cpu, 0, eps=0.1)
    convolved = conv2d(inputs["x"], inputs["weight"], stride=2, padding=1)
    expected = batch_norm(convolved, *(inputs[name] for name in ("mean", "var", "gamma", "beta")), eps=0.1)
    found = op.reference(params, **{name: tensor.numpy() for name, tensor in inputs.items()})
    np.testing.assert_allclose(found, relu(expected) if op is CONV_BN_RELU else expected, rtol=1e-11, atol=1e-11)


def test_backward_cost_by_hand() -> None:
    # 128 results of 18 products; two convolutions and a sum for the bias; x, weights, gradient and result are read.
    params = CONV_RELU.complete({**SIZES, "padding": 0})
    assert CONV_RELU.phase_cost(params, "backward") == Cost(128 * 73, (180 + 72 + 256) * 4, (180 + 72 + 4) * 4)
    known, trained = (CONV_BN.complete({**SIZES, "padding": 0, "training": flag}) for flag in (False, True))
    assert CONV_BN.phase_cost(known, "backward") == Cost(128 * 78, (180 + 72 + 256 + 12) * 4, (180 + 72 + 8) * 4)
    assert CONV_BN.phase_cost(trained, "backward") == Cost(128 * 81, (180 + 72 + 256 + 4) * 4, (180 + 72 + 8) * 4)
    assert CONV_BN.cost(trained) == Cost(128 * 43, (180 + 72 + 16) * 4, (128 + 8) * 4)


@pytest.mark.parametrize("op", [CONV_BN, CONV_BN_RELU], ids=lambda op: op.name)
def test_training_uses_the_batch_and_updates_the_statistics_as_torch_does(op: Operator, torch_cpu: Any) -> None:
    params, inputs = made(op, torch_cpu, 0, training=True, momentum=0.3)
    found = op.reference(params, **{name: tensor.numpy().copy() for name, tensor in inputs.items()})
    (chain,) = (i for i in op.implementations_for("torch") if i.label == "unfused")
    expected = chain.build(params, **inputs)()
    for one, due in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, due, rtol=1e-11, atol=1e-11)
    assert expected[1] is inputs["mean"]


@pytest.mark.parametrize("op", [CONV_BN, CONV_BN_RELU], ids=lambda op: op.name)
def test_what_is_folded_is_for_inference(op: Operator, torch_cpu: Any) -> None:
    (folded,) = (i for i in op.implementations_for("torch") if i.label == "folded")
    params, inputs = made(op, torch_cpu, 0, dtype="float32")
    launch = folded.build(params, **inputs)
    launch()
    with pytest.raises(Unsupported, match="for inference, and have no gradient"):
        torch_cpu.backward(launch, [inputs[name] for name in op.gradients], 0)
    with pytest.raises(Unsupported, match="cannot be folded"):
        folded.build({**params, "training": True}, **inputs)


@pytest.mark.parametrize("op", [CONV_BN, CONV_BN_RELU], ids=lambda op: op.name)
def test_a_case_without_training_is_the_stored_one_of_0_8(op: Operator) -> None:
    stored = {**STRIDED, "eps": 1e-5, "dtype": "float32"}
    assert op.complete({**STRIDED, "training": False, "momentum": 0.1}) == stored
    op.check_rules(stored)
    assert op.phase_cost(stored, "both") == op.phase_cost({**stored, "training": False, "momentum": 0.1}, "both")


def test_training_needs_several_elements_for_each_channel() -> None:
    params = CONV_BN.complete({**SIZES, "image": [1, 1], "kernel": [1, 1], "padding": 0, "training": True})
    with pytest.raises(InvalidParameter, match="parameter `training` must be false"):
        CONV_BN.check_rules(params)
    CONV_BN.check_rules({**params, "training": False})


def test_what_is_folded_is_the_same_for_every_seed_and_x_is_not(torch_cpu: Any) -> None:
    """The launch keeps folded weights, which other data in the same tensors would not change."""
    (_, one), (_, other) = made(CONV_BN, torch_cpu, 0), made(CONV_BN, torch_cpu, 1)
    same = {name for name in one if torch.equal(one[name], other[name])}
    assert same == {"weight", "gamma", "beta", "mean", "var"}


@pytest.mark.parametrize("op", FUSED_CONV_OPERATORS, ids=lambda op: op.name)
def test_what_is_folded_beforehand_is_not_called_fused(op: Operator) -> None:
    named = "fused" if op is CONV_RELU else "folded"
    assert [i.label for i in op.implementations_for("torch")] == ["unfused", named, "compiled"]


def test_statistics_differ_from_each_other(torch_cpu: Any) -> None:
    _, inputs = made(CONV_BN, torch_cpu, 0)
    assert not torch.equal(inputs["beta"], inputs["mean"])
    assert all(len(set(inputs[name].flatten().tolist())) > 3 for name in inputs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"image": [6]}, "parameter `image` must have two sizes"),
        ({"kernel": [3, 3, 3]}, "parameter `kernel` must have two sizes"),
        ({"kernel": [9, 1]}, "parameter `kernel` must fit into the padded image"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        CONV_RELU.check_rules(CONV_RELU.complete({**SIZES, **given}))


def test_torchs_modules_are_found_by_their_names() -> None:
    assert operator("ConvBnReLU2d") is operator("conv_bn_relu")
