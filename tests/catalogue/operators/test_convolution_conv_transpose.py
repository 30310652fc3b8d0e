"""conv_transpose1d, conv_transpose2d, conv_transpose3d."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from opmark.catalogue.operators.convolution import CONV_TRANSPOSE1D, CONV_TRANSPOSE2D, CONV_TRANSPOSE3D
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator

BASE: dict[str, Any] = {"batch": 2, "in_channels": 6, "image": [5, 4], "out_channels": 4}

CASES: list[tuple[Operator, dict[str, Any]]] = [
    (CONV_TRANSPOSE2D, BASE),
    (CONV_TRANSPOSE2D, {**BASE, "stride": 1, "padding": 0}),
    (CONV_TRANSPOSE2D, {**BASE, "stride": 3, "output_padding": 2, "kernel": [2, 4]}),
    (CONV_TRANSPOSE2D, {**BASE, "groups": 2, "dilation": 3, "output_padding": 2, "padding": 2}),
    (CONV_TRANSPOSE1D, {**BASE, "image": [7], "kernel": [4], "groups": 2}),
    (CONV_TRANSPOSE3D, {**BASE, "image": [3, 2, 4], "kernel": [1, 3, 2], "groups": 2, "padding": 0}),
]
every_case = pytest.mark.parametrize(("op", "variant"), CASES, ids=lambda value: getattr(value, "name", str(value)))


def _agrees_with_torch(op: Operator, params: dict[str, Any]) -> None:
    generator = np.random.default_rng(0)
    arrays = {name: generator.uniform(-1, 1, spec.shape) for name, spec in op.inputs(params).items()}
    (implementation,) = op.implementations_for("torch")
    expected = implementation.build(params, **{k: torch.from_numpy(a) for k, a in arrays.items()})().numpy()
    np.testing.assert_allclose(op.reference(params, **arrays), expected, rtol=1e-12, atol=1e-13)
    assert op.cost(params).bytes_written == expected.nbytes


@every_case
def test_the_reference_is_that_of_torch(op: Operator, variant: dict[str, Any]) -> None:
    _agrees_with_torch(op, op.complete({**variant, "dtype": "float64"}))


@settings(deadline=None, max_examples=40)
@given(
    groups=st.integers(1, 2),
    image=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    output_padding=st.integers(0, 3),
    dilation=st.integers(1, 3),
)
def test_whatever_the_rules_allow_is_computed_as_torch_does(
    groups: int, image: Any, kernel: Any, stride: int, padding: int, output_padding: int, dilation: int
) -> None:
    params = {
        "batch": 2, "in_channels": 2 * groups, "image": list(image), "out_channels": 3 * groups,
        "kernel": list(kernel), "stride": stride, "padding": padding, "output_padding": output_padding,
        "dilation": dilation, "groups": groups, "dtype": "float64",
    }  # fmt: skip
    try:
        CONV_TRANSPOSE2D.check_rules(params)
    except InvalidParameter:
        with pytest.raises(RuntimeError):  # what the rules refuse, torch refuses
            _agrees_with_torch(CONV_TRANSPOSE2D, params)
        assume(False)
    _agrees_with_torch(CONV_TRANSPOSE2D, params)


@every_case
def test_torch_counts_as_many_operations(op: Operator, variant: dict[str, Any], torch_cpu: Any) -> None:
    params = op.complete(variant)
    inputs = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
    (implementation,) = op.implementations_for("torch")
    forward = implementation.build(params, **inputs)
    with FlopCounterMode(display=False) as counter:
        forward()
    assert op.cost(params).flops == counter.get_total_flops()
    backward, _ = torch_cpu.backward(forward, list(inputs.values()), 0)
    with FlopCounterMode(display=False) as counter:
        backward()
    # torch's counter takes the gradient of the weight as if there were no groups, so it counts that `groups` times.
    assert op.backward_cost(params).flops == counter.get_total_flops() * 2 / (1 + params["groups"])


def test_cost_by_hand() -> None:
    """2 channels of 3 pixels, each pixel spread by 4 weights over each of 5 channels: (3 - 1) x 2 + 4 pixels."""
    params = CONV_TRANSPOSE1D.complete(
        {"batch": 1, "in_channels": 2, "image": [3], "out_channels": 5, "kernel": [4], "padding": 0}
    )
    forward, backward = (CONV_TRANSPOSE1D.phase_cost(params, phase) for phase in ("forward", "backward"))
    assert (forward.flops, forward.bytes_read, forward.bytes_written) == (2 * 2 * 3 * 4 * 5, 4 * (6 + 40), 4 * 5 * 8)
    assert (backward.flops, backward.bytes_read, backward.bytes_written) == (480, 4 * (46 + 40), 4 * 46)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"groups": 4}, "groups"),
        ({"groups": 3}, "groups"),
        ({"image": [5]}, "image"),
        ({"kernel": [3, 3, 3]}, "kernel"),
        ({"output_padding": 2}, "output_padding"),
        ({"kernel": [1, 1], "padding": 4}, "padding"),
    ],
    ids=str,
)
def test_what_cannot_be_computed_is_refused(change: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        CONV_TRANSPOSE2D.check_rules(CONV_TRANSPOSE2D.complete({**BASE, **change}))


def test_names_of_other_systems_are_known() -> None:
    assert operator("Deconvolution") is operator("Conv2DTranspose") is CONV_TRANSPOSE2D
    assert operator("Conv1DTranspose") is CONV_TRANSPOSE1D
