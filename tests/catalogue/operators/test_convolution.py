"""conv1d, conv2d, conv3d, and the grouped, depthwise and pointwise ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from opmark.catalogue.operators._window import covered_elements, out_sizes, window_values
from opmark.catalogue.operators.convolution import CONV1D, CONV2D, CONV3D, DEPTHWISE, GROUPED, POINTWISE
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

BASE: dict[str, Any] = {"batch": 2, "in_channels": 6, "image": [9, 7], "out_channels": 4}
ONE_EACH = {"batch": 2, "in_channels": 6, "image": [9, 7], "out_channels": 6, "groups": 6}

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
    ONE_EACH,
    {**ONE_EACH, "out_channels": 12, "stride": 2},
]


LINE = {"batch": 2, "in_channels": 6, "image": [11], "out_channels": 4}
VOLUME = {"batch": 2, "in_channels": 4, "image": [5, 6, 7], "out_channels": 6}
CASES: list[tuple[Operator, dict[str, Any]]] = [
    *((CONV2D, variant) for variant in VARIANTS),
    (CONV1D, LINE),
    (CONV1D, {**LINE, "kernel": [4], "stride": 3, "padding": 2, "dilation": 2, "groups": 2}),
    (CONV1D, {**LINE, "kernel": [11], "padding": 0}),
    (CONV3D, VOLUME),
    (CONV3D, {**VOLUME, "kernel": [3, 2, 1], "stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
    (GROUPED, {**BASE, "groups": 2, "kernel": [2, 3]}),
    (DEPTHWISE, {"batch": 2, "channels": 5, "image": [9, 7]}),
    (DEPTHWISE, {"batch": 2, "channels": 5, "image": [9, 7], "multiplier": 3, "stride": 2, "kernel": [2, 3]}),
    (POINTWISE, {"batch": 2, "in_channels": 5, "image": [9, 7], "out_channels": 3}),
]
every_case = pytest.mark.parametrize(("op", "variant"), CASES, ids=lambda value: getattr(value, "name", str(value)))


def _arrays(params: dict[str, Any], op: Operator = CONV2D) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {name: generator.uniform(-1, 1, spec.shape) for name, spec in op.inputs(params).items()}


def _torch(params: dict[str, Any], x: Any, weight: Any, op: Operator = CONV2D) -> Any:
    (implementation,) = op.implementations_for("torch")
    return implementation.build(params, x=torch.from_numpy(x), weight=torch.from_numpy(weight))()


def _agrees_with_torch(params: dict[str, Any], op: Operator = CONV2D) -> None:
    params = {**params, "dtype": "float64"}
    arrays = _arrays(params, op)
    expected = _torch(params, **arrays, op=op).numpy()
    (implementation,) = op.implementations_for("numpy")
    np.testing.assert_allclose(op.reference(params, **arrays), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(implementation.build(params, **arrays)(), expected, rtol=1e-12, atol=1e-13)
    assert op.cost(params).bytes_written == expected.nbytes


@every_case
def test_the_reference_is_that_of_torch(op: Operator, variant: dict[str, Any]) -> None:
    _agrees_with_torch(op.complete(variant), op)


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


def test_a_strided_kernel_of_one_reads_only_what_it_meets() -> None:
    """Every second pixel of every second row: 2 x 3 of 4 x 6, 2 channels; 3 kernels of 2: 18 results of 2 products."""
    given = {"batch": 1, "in_channels": 2, "image": [4, 6], "out_channels": 3, "kernel": [1, 1], "padding": 0}
    params = CONV2D.complete({**given, "stride": 2})
    assert CONV2D.phase_cost(params, "forward") == Cost(2 * 18 * 2, 4 * (12 + 6), 4 * 18)
    assert CONV2D.phase_cost(params, "backward") == Cost(4 * 18 * 2, 4 * (12 + 6 + 18), 4 * (48 + 6))


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("kernel", [[1, 1], [2, 3], [3, 3]])
def test_the_pixels_that_are_read_are_those_that_a_kernel_of_ones_meets(
    stride: int, padding: int, dilation: int, kernel: list[int]
) -> None:
    params = {"image": [11, 14], "kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    met = np.zeros((11 + 2 * padding, 14 + 2 * padding), bool)
    for at in np.ndindex(*kernel):
        window_values(params, met, at, out_sizes(params))[...] = True
    assert covered_elements(params) == met[padding : padding + 11, padding : padding + 14].sum()


def test_cost_by_hand_of_a_depthwise_one() -> None:
    """Each of 6 channels has a kernel of 9 of its own; stride 2 and padding 1 leave 5 x 4 of 9 x 7 pixels."""
    params = CONV2D.complete({**ONE_EACH, "stride": 2, "dtype": "float16"})
    forward, backward = CONV2D.phase_cost(params, "forward"), CONV2D.phase_cost(params, "backward")
    outputs = 2 * 6 * 5 * 4
    inputs = 2 * 6 * 9 * 7 + 6 * 9
    assert (forward.flops, forward.bytes_read, forward.bytes_written) == (2 * outputs * 9, 2 * inputs, 2 * outputs)
    assert backward.flops == 4 * outputs * 9
    assert (backward.bytes_read, backward.bytes_written) == (2 * (inputs + outputs), 2 * inputs)


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
    groups = params["channels"] if op is DEPTHWISE else params.get("groups", 1)
    assert op.backward_cost(params).flops == counter.get_total_flops() * 2 / (1 + groups)


@pytest.mark.parametrize(
    ("special", "general"),
    [
        ((DEPTHWISE, {"batch": 2, "channels": 6, "image": [9, 7], "stride": 2}), {**ONE_EACH, "stride": 2}),
        ((POINTWISE, BASE), {**BASE, "kernel": [1, 1], "padding": 0}),
        ((GROUPED, {**BASE, "groups": 2}), {**BASE, "groups": 2}),
    ],
    ids=["depthwise", "pointwise", "grouped"],
)
def test_special_ones_cost_what_the_general_one_does(special: Any, general: dict[str, Any]) -> None:
    op, given = special
    params, same = op.complete(given), CONV2D.complete(general)
    for phase in ("forward", "backward"):
        assert op.phase_cost(params, phase) == CONV2D.phase_cost(same, phase)


@pytest.mark.parametrize(
    ("alias", "op"),
    [("Convolution", CONV2D), ("Conv1D", CONV1D), ("Conv2D", CONV2D), ("Conv3D", CONV3D), ("Conv2d", CONV2D)],
    ids=lambda v: getattr(v, "name", v),
)
def test_names_of_other_systems_are_known(alias: str, op: Operator) -> None:
    assert operator(alias) is op


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


@pytest.mark.parametrize(
    ("op", "given", "param"),
    [
        (CONV1D, {**LINE, "image": [11, 11]}, "image"),
        (CONV1D, {**LINE, "kernel": [14]}, "kernel"),
        (CONV3D, {**VOLUME, "kernel": [3, 3]}, "kernel"),
        (CONV3D, {**VOLUME, "groups": 3}, "groups"),
        (GROUPED, {**BASE, "groups": 4}, "groups"),
        (DEPTHWISE, {"batch": 1, "channels": 2, "image": [5, 5], "kernel": [8, 3]}, "kernel"),
        (POINTWISE, {**BASE, "image": [9]}, "image"),
    ],
    ids=lambda v: getattr(v, "name", str(v)),
)
def test_the_others_refuse_as_well(op: Operator, given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        op.check_rules(op.complete(given))


def test_stride_zero_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="`stride`: expected a whole number of at least 1"):
        CONV2D.param("stride").check(0)
