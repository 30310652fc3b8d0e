"""Pools whose windows slide over the image."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opmark.errors import InvalidParameter
from opmark.plugin.registry import operator

BASE: dict[str, Any] = {"batch": 2, "channels": 3, "image": [7, 10]}


def _found(name: str, params: dict[str, Any]) -> tuple[Any, Any]:
    """Return what the reference and torch compute in float64."""
    op = operator(name)
    generator = np.random.default_rng(0)
    arrays = {name: generator.uniform(spec.low, spec.high, spec.shape) for name, spec in op.inputs(params).items()}
    (implementation,) = op.implementations_for("torch")
    found = implementation.build(params, **{k: torch.from_numpy(a) for k, a in arrays.items()})()
    return op.reference(params, **arrays), found.numpy()


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(("max_pool2d", "avg_pool2d", "sum_pool2d")),
    image=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 5),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 3),
    counts=st.booleans(),
)
def test_whatever_the_rules_allow_is_computed_as_torch_does(
    name: str, image: Any, kernel: Any, stride: int, padding: int, dilation: int, counts: bool
) -> None:
    op = operator(name)
    given = {
        "batch": 2, "channels": 2, "image": list(image), "kernel": list(kernel), "stride": stride,
        "padding": padding, "dilation": dilation, "count_include_pad": counts, "dtype": "float64",
    }  # fmt: skip
    params = {key: value for key, value in given.items() if key in op.by_name}
    try:
        op.check_rules(params)
    except InvalidParameter:
        assume(False)
    expected, found = _found(name, params)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    assert op.cost(params).bytes_written == found.nbytes


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_sum_is_the_mean_times_the_window(dims: int) -> None:
    given = {"batch": 2, "channels": 2, "image": [5, 6, 7][:dims], "kernel": [3, 2, 2][:dims], "padding": 1}
    total, mean = (operator(f"{kind}_pool{dims}d") for kind in ("sum", "avg"))
    sums = _found(total.name, total.complete({**given, "dtype": "float64"}))[1]
    means = _found(mean.name, mean.complete({**given, "dtype": "float64"}))[1]
    np.testing.assert_allclose(sums, means * np.prod(given["kernel"]), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "flops", "backward"),
    # 2 x 3 windows of 6 values in each of 2 x 3 channels
    [
        ("max_pool2d", 0, 36),
        ("avg_pool2d", 36 * 6, 36 * 7),
        ("sum_pool2d", 36 * 5, 36 * 6),
        ("lp_pool2d", 36 * 12, 36 * 24),
    ],
)
def test_operations_by_hand(name: str, flops: int, backward: int) -> None:
    op = operator(name)
    params = op.complete({**BASE, "kernel": [2, 3], "stride": 3})
    assert op.cost(params).flops == flops
    assert op.backward_cost(params).flops == backward


def test_bytes_by_hand() -> None:
    """2 x 3 images of 7 x 10, of which windows of 2 x 2 leave 3 x 5, in half precision; indices have 8 bytes."""
    outputs, inputs, covered = 6 * 15, 6 * 70, 6 * 60  # the seventh row is in no window
    moved = {}
    for name in ("max_pool2d", "avg_pool2d", "lp_pool2d"):
        op = operator(name)
        params = op.complete({**BASE, "dtype": "float16"})
        assert (op.cost(params).bytes_read, op.cost(params).bytes_written) == (2 * covered, 2 * outputs)
        assert op.backward_cost(params).bytes_written == 2 * inputs
        moved[name] = op.backward_cost(params).bytes_read
    assert moved["max_pool2d"] == outputs * (2 + 8)
    assert moved["avg_pool2d"] == 2 * outputs
    assert moved["lp_pool2d"] == 2 * (covered + 2 * outputs)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d", "sum_pool2d", "lp_pool2d"])
def test_what_lies_between_two_windows_is_not_read(name: str) -> None:
    """Windows of 2 x 2 every 5 pixels of 12 x 12: 3 x 3 windows, 36 of 144 pixels. All of the gradient is written."""
    op = operator(name)
    params = op.complete({"batch": 1, "channels": 1, "image": [12, 12], "kernel": [2, 2], "stride": 5})
    assert (op.cost(params).bytes_read, op.cost(params).bytes_written) == (4 * 36, 4 * 9)
    backward = op.backward_cost(params)
    reads = {"max_pool2d": 9 * (4 + 8), "lp_pool2d": 4 * (36 + 18)}
    assert (backward.bytes_read, backward.bytes_written) == (reads.get(name, 4 * 9), 4 * 144)


def test_padding_is_never_the_largest_value() -> None:
    op = operator("max_pool2d")
    params = op.complete({"batch": 1, "channels": 1, "image": [3, 3], "kernel": [3, 3], "stride": 1, "padding": 1})
    assert (op.reference(params, x=-np.ones((1, 1, 3, 3))) == -1).all()


@pytest.mark.parametrize("counts", [True, False])
def test_padding_counts_in_a_mean_or_not(counts: bool) -> None:
    op = operator("avg_pool2d")
    given = {"batch": 1, "channels": 1, "image": [3, 3], "kernel": [3, 3], "stride": 1, "padding": 1}
    params = op.complete({**given, "count_include_pad": counts})
    found = op.reference(params, x=np.ones((1, 1, 3, 3)))
    assert found[0, 0, 0, 0] == (4 / 9 if counts else 1.0)
    assert found[0, 0, 1, 1] == 1.0


@pytest.mark.parametrize(
    ("name", "change", "param"),
    [
        ("max_pool2d", {"image": [7]}, "image"),
        ("max_pool2d", {"kernel": [2]}, "kernel"),
        ("max_pool2d", {"kernel": [8, 2]}, "kernel"),
        ("max_pool2d", {"kernel": [2, 3], "padding": 2}, "padding"),
        ("max_pool2d", {"kernel": [2, 2], "dilation": 8, "padding": 1}, "dilation"),
        ("avg_pool2d", {"kernel": [2, 11]}, "kernel"),
        ("sum_pool2d", {"kernel": [3, 3], "padding": 2}, "padding"),
        ("lp_pool2d", {"norm_type": 0.5}, "norm_type"),
        ("lp_pool2d", {"kernel": [8, 8]}, "kernel"),
    ],
)
def test_what_cannot_be_pooled_is_refused(name: str, change: dict[str, Any], param: str) -> None:
    op = operator(name)
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        op.check_rules(op.complete({**BASE, **change}))


def test_names_of_other_systems_are_known() -> None:
    assert operator("Pooling") is operator("max_pool2d")
    for dims, kind in product((1, 2, 3), ("Max", "Avg", "Sum")):
        assert operator(f"{kind}Pool{dims}D") is operator(f"{kind.lower()}_pool{dims}d")
