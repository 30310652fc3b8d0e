"""correlation."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opmark.catalogue.operators.vision import CORRELATION
from opmark.errors import InvalidParameter
from opmark.plugin.registry import operator

GIVEN: dict[str, Any] = {"batch": 2, "channels": 3, "image": [7, 9], "max_displacement": 2, "padding": 2}


@settings(deadline=None, max_examples=40)
@given(
    image=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    kernel=st.sampled_from((1, 3)),
    displacement=st.integers(0, 3),
    stride=st.integers(1, 3),
    step=st.integers(1, 2),
    padding=st.integers(0, 3),
)
def test_torch_computes_what_the_reference_does(
    image: Any, kernel: int, displacement: int, stride: int, step: int, padding: int
) -> None:
    params = {
        "batch": 1, "channels": 2, "image": list(image), "kernel": kernel, "max_displacement": displacement,
        "stride": stride, "displacement_stride": step, "padding": padding, "dtype": "float64",
    }  # fmt: skip
    try:
        CORRELATION.check_rules(params)
    except InvalidParameter:
        assume(False)
    generator = np.random.default_rng(0)
    x, y = generator.uniform(-1, 1, (2, 1, 2, *image))
    (implementation,) = CORRELATION.implementations_for("torch")
    found = implementation.build(params, x=torch.from_numpy(x), y=torch.from_numpy(y))().numpy()
    np.testing.assert_allclose(CORRELATION.reference(params, x=x, y=y), found, rtol=1e-12, atol=1e-13)
    assert CORRELATION.cost(params).bytes_written == found.nbytes


def test_a_moved_image_fits_best_where_it_was_moved_to() -> None:
    """The second image is the first one, a row down and two columns to the left."""
    x = np.random.default_rng(0).choice((-1.0, 1.0), (2, 3, 7, 9))
    y = np.roll(x, (1, -2), axis=(2, 3))
    found = CORRELATION.reference(CORRELATION.complete({**GIVEN, "dtype": "float64"}), x=x, y=y)
    shifts = list(product(range(-2, 3), repeat=2))
    inner = found[:, :, 2:-2, 2:-2]
    assert (inner[:, shifts.index((1, -2))] == 1).all()
    assert (inner.mean(axis=(0, 2, 3)) < 1).sum() == len(shifts) - 1


def test_cost_by_hand() -> None:
    """5 x 5 displacements of 5 x 7 patches of 3 x 3 pixels in 3 channels."""
    params = CORRELATION.complete({**GIVEN, "kernel": 3})
    outputs, image = 2 * 25 * 5 * 7, 2 * 3 * 63
    forward, backward = CORRELATION.cost(params), CORRELATION.backward_cost(params)
    assert (forward.flops, forward.bytes_read, forward.bytes_written) == (54 * outputs, 8 * image, 4 * outputs)
    assert (backward.flops, backward.bytes_written) == (108 * outputs, 8 * image)
    assert backward.bytes_read == 8 * image + 4 * outputs


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"kernel": 2}, "kernel"),
        ({"image": [7]}, "image"),
        ({"max_displacement": 6}, "max_displacement"),
        ({"kernel": 9}, "max_displacement"),
    ],
    ids=str,
)
def test_what_cannot_be_displaced_is_refused(change: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        CORRELATION.check_rules(CORRELATION.complete({**GIVEN, **change}))


def test_the_name_of_mxnet_is_known() -> None:
    assert operator("Correlation") is CORRELATION
