"""Larger images: upsample_*."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.errors import InvalidParameter
from opmark.plugin.registry import operator

GIVEN: dict[str, Any] = {"batch": 2, "channels": 3, "image": [5, 7]}


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(("upsample_bilinear2d", "upsample_bicubic2d")),
    image=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    more=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    corners=st.booleans(),
)
def test_the_reference_is_that_of_torch(name: str, image: Any, more: Any, corners: bool) -> None:
    op = operator(name)
    out = [n + m for n, m in zip(image, more, strict=True)]
    sizes = {"batch": 2, "channels": 2, "image": list(image), "out": out}
    params = op.complete({**sizes, "align_corners": corners, "dtype": "float64"})
    op.check_rules(params)
    x = np.random.default_rng(0).uniform(-1, 1, (2, 2, *image))
    (implementation,) = op.implementations_for("torch")
    found = implementation.build(params, x=torch.from_numpy(x))()
    np.testing.assert_allclose(op.reference(params, x=x), found.numpy(), rtol=1e-10, atol=1e-12)


def test_nearest_repeats() -> None:
    op = operator("upsample_nearest2d")
    params = op.complete({**GIVEN, "out": [15, 14]})
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, 5, 7))
    np.testing.assert_array_equal(op.reference(params, x=x), x.repeat(3, axis=2).repeat(2, axis=3))


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "upsample_bicubic2d"])
def test_a_constant_image_stays_constant(name: str) -> None:
    op = operator(name)
    found = op.reference(op.complete({**GIVEN, "out": [9, 11]}), x=np.full((2, 3, 5, 7), 0.5))
    np.testing.assert_allclose(found, 0.5, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "flops", "backward"),
    [("nearest", 0, 1), ("bilinear", 2 * 4, 2 * 4), ("bicubic", 2 * 16, 2 * 16)],
)
def test_cost_by_hand(name: str, flops: int, backward: int) -> None:
    """2 x 3 images of 5 x 7; each pixel comes from several neighbours."""
    op = operator(f"upsample_{name}2d")
    params = op.complete({**GIVEN, "out": [10, 14]})
    inputs, outputs = 6 * 35, 6 * 140
    forward, back = op.cost(params), op.backward_cost(params)
    assert (forward.flops, forward.bytes_read, forward.bytes_written) == (flops * outputs, 4 * inputs, 4 * outputs)
    assert (back.flops, back.bytes_read, back.bytes_written) == (backward * outputs, 4 * outputs, 4 * inputs)


@pytest.mark.parametrize(("dtype", "grows"), [("float32", True), ("float16", False)])
def test_large_images_are_judged_by_how_well_positions_are_known(dtype: str, grows: bool) -> None:
    """Positions have the precision of float32, whose errors matter less to a 16-bit type."""
    op = operator("upsample_linear1d")
    sizes = [{**GIVEN, "image": [n], "out": [n], "dtype": dtype} for n in (10, 1000)]
    small, large = (op.tolerance.bounds(dtype, op.complete(size))[1] for size in sizes)
    assert (large > small) == grows


def test_positions_in_a_large_image_are_as_close_as_is_allowed(torch_cpu: Any) -> None:
    op = operator("upsample_linear1d")
    params = op.complete({"batch": 1, "channels": 2, "image": [20001], "out": [34567]})
    x = torch_cpu.tensor(op.inputs(params)["x"], 0)
    (implementation,) = op.implementations_for("torch")
    error = np.abs(implementation.build(params, x=x)().numpy() - op.reference(params, x=x.numpy().astype(float)))
    _, typical = op.tolerance.bounds("float32", params)
    assert 0.01 * typical < error.max() < typical


@pytest.mark.parametrize(
    ("name", "change", "param", "detail"),
    [
        ("bilinear", {"out": [4, 7]}, "out", "at least the image"),
        ("bicubic", {"out": [9, 9, 9]}, "out", "two sizes"),
        ("nearest", {"out": [10, 15]}, "out", "multiple"),
        ("nearest", {"image": [5], "out": [5, 5]}, "image", "two sizes"),
    ],
)
def test_what_is_not_larger_is_refused(name: str, change: dict[str, Any], param: str, detail: str) -> None:
    op = operator(f"upsample_{name}2d")
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must .*{detail}"):
        op.check_rules(op.complete({**GIVEN, **change}))


def test_names_of_other_systems_are_known() -> None:
    assert operator("UpSampling") is operator("upsample_nearest2d")
    assert operator("interpolate") is operator("upsample_nearest2d")
    assert operator("BilinearResize2D") is operator("upsample_bilinear2d")
