"""conv2d."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from opmark.errors import InvalidParameter
from opmark.operators.convolution import CONV2D

BASE: dict[str, Any] = {"batch": 2, "in_channels": 6, "image": [9, 7], "out_channels": 4}
DEPTHWISE = {"batch": 2, "in_channels": 6, "image": [9, 7], "out_channels": 6, "groups": 6}

VARIANTS = [
    BASE,
    {**BASE, "stride": 2},
    {**BASE, "padding": 0},
    {**BASE, "padding": 3},
    {**BASE, "dilation": 2},
    {**BASE, "groups": 2},
    {**BASE, "kernel": [3, 2]},
    {**BASE, "kernel": [1, 1], "padding": 0},
    {**BASE, "kernel": [9, 7], "padding": 0},
    {**BASE, "kernel": [3, 2], "stride": 2, "padding": 2, "dilation": 2, "groups": 2},
    {**BASE, "kernel": [2, 4], "stride": 3, "padding": 1},
    DEPTHWISE,
    {**DEPTHWISE, "out_channels": 12, "stride": 2},
]


def _arrays(params: dict[str, Any]) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {name: generator.uniform(-1, 1, spec.shape) for name, spec in CONV2D.inputs(params).items()}


def _torch(params: dict[str, Any], x: Any, weight: Any) -> Any:
    options = {key: params[key] for key in ("stride", "padding", "dilation", "groups")}
    return torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(weight), **options)


def _agrees_with_torch(params: dict[str, Any]) -> None:
    arrays = _arrays(params)
    expected = _torch(params, **arrays).numpy()
    (implementation,) = CONV2D.implementations_for("numpy")
    np.testing.assert_allclose(CONV2D.reference(params, **arrays), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(implementation.build(params, **arrays)(), expected, rtol=1e-12, atol=1e-13)
    assert CONV2D.cost({**params, "dtype": "float64"}).bytes_written == expected.nbytes


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_reference_is_that_of_torch(variant: dict[str, Any]) -> None:
    _agrees_with_torch(CONV2D.complete(variant))


@settings(deadline=None, max_examples=40)
@given(
    batch=st.integers(1, 2),
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    image=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 4),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 3),
)
def test_whatever_the_rules_allow_is_computed_as_torch_does(
    batch: int, groups: int, channels: tuple[int, int], image: Any, kernel: Any, stride: int, padding: int,
    dilation: int,
) -> None:  # fmt: skip
    params = {
        "batch": batch, "in_channels": groups * channels[0], "image": list(image),
        "out_channels": groups * channels[1], "kernel": list(kernel), "stride": stride, "padding": padding,
        "dilation": dilation, "groups": groups, "dtype": "float64",
    }  # fmt: skip
    try:
        CONV2D.check_rules(params)
    except InvalidParameter:
        with pytest.raises(RuntimeError):  # what the rules refuse, torch refuses
            _torch(params, **_arrays(params))
        assume(False)
    _agrees_with_torch(params)


def test_cost_by_hand() -> None:
    """One image of 2 channels, 3 x 4; 5 kernels of 2 x 3 x 2 without padding: 5 x 1 x 3 results of 12 products each."""
    params = CONV2D.complete(
        {"batch": 1, "in_channels": 2, "image": [3, 4], "out_channels": 5, "kernel": [3, 2], "padding": 0}
    )
    forward, backward = CONV2D.phase_cost(params, "forward"), CONV2D.phase_cost(params, "backward")
    assert (forward.flops, forward.bytes_read, forward.bytes_written) == (2 * 15 * 12, 4 * (24 + 60), 4 * 15)
    assert (backward.flops, backward.bytes_read, backward.bytes_written) == (4 * 15 * 12, 4 * 99, 4 * 84)


def test_cost_by_hand_of_a_depthwise_one() -> None:
    """Each of 6 channels has a kernel of 9 of its own; stride 2 and padding 1 leave 5 x 4 of 9 x 7 pixels."""
    params = CONV2D.complete({**DEPTHWISE, "stride": 2, "dtype": "float16"})
    forward, backward = CONV2D.phase_cost(params, "forward"), CONV2D.phase_cost(params, "backward")
    outputs = 2 * 6 * 5 * 4
    inputs = 2 * 6 * 9 * 7 + 6 * 9
    assert (forward.flops, forward.bytes_read, forward.bytes_written) == (2 * outputs * 9, 2 * inputs, 2 * outputs)
    assert backward.flops == 4 * outputs * 9
    assert (backward.bytes_read, backward.bytes_written) == (2 * (inputs + outputs), 2 * inputs)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_torch_counts_as_many_operations(variant: dict[str, Any], torch_cpu: Any) -> None:
    params = CONV2D.complete(variant)
    inputs = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(CONV2D.inputs(params).items())}
    (implementation,) = CONV2D.implementations_for("torch")
    forward = implementation.build(params, **inputs)
    with FlopCounterMode(display=False) as counter:
        forward()
    assert CONV2D.cost(params).flops == counter.get_total_flops()
    backward, _ = torch_cpu.backward(forward, list(inputs.values()), 0)
    with FlopCounterMode(display=False) as counter:
        backward()
    # torch's counter takes the gradient of the weight as if there were no groups, so it counts that `groups` times.
    counted = counter.get_total_flops() * 2 / (1 + params["groups"])
    assert CONV2D.backward_cost(params).flops == counted


REFUSED = [
    ({"groups": 4}, "groups", "in_channels=6"),
    ({"in_channels": 4, "out_channels": 6, "groups": 4}, "groups", "out_channels=6"),
    ({"kernel": [10, 3], "padding": 0}, "kernel", r"\[9, 7\]"),
    ({"kernel": [3, 8], "padding": 0}, "kernel", r"\[9, 7\]"),
    ({"kernel": [3, 5], "padding": 0, "dilation": 2}, "kernel", "dilation 2"),
    ({"image": [9]}, "image", r"\[9\]"),
    ({"image": [9, 7, 5]}, "image", r"\[9, 7, 5\]"),
    ({"kernel": [3]}, "kernel", r"\[3\]"),
    ({"kernel": [3, 3, 3]}, "kernel", r"\[3, 3, 3\]"),
]


@pytest.mark.parametrize(("change", "param", "detail"), REFUSED, ids=str)
def test_what_cannot_be_convolved_is_refused(change: dict[str, Any], param: str, detail: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must .*{detail}"):
        CONV2D.check_rules(CONV2D.complete({**BASE, **change}))


@pytest.mark.parametrize("change", [{"kernel": [9, 7], "padding": 0}, {"kernel": [11, 9]}, {"groups": 2}])
def test_what_just_fits_is_allowed(change: dict[str, Any]) -> None:
    CONV2D.check_rules(CONV2D.complete({**BASE, **change}))
