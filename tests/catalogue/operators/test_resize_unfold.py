"""im2col, col2im."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opmark.catalogue.operators.resize import COL2IM, IM2COL
from opmark.errors import InvalidParameter
from opmark.plugin.registry import operator

GIVEN: dict[str, Any] = {"batch": 2, "channels": 3, "image": [7, 9], "kernel": [2, 3]}


@settings(deadline=None, max_examples=40)
@given(
    image=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 4),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 3),
)
def test_one_is_the_transpose_of_the_other(image: Any, kernel: Any, stride: int, padding: int, dilation: int) -> None:
    """<columns of x, y> = <x, image of y> for any x and y."""
    params = {
        "batch": 2, "channels": 2, "image": list(image), "kernel": list(kernel), "stride": stride, "padding": padding,
        "dilation": dilation, "dtype": "float64",
    }  # fmt: skip
    try:
        IM2COL.check_rules(params)
    except InvalidParameter:
        assume(False)
    generator = np.random.default_rng(0)
    x, y = (generator.uniform(-1, 1, op.inputs(params)["x"].shape) for op in (IM2COL, COL2IM))
    there, back = IM2COL.reference(params, x=x), COL2IM.reference(params, x=y)
    np.testing.assert_allclose((there * y).sum(), (x * back).sum(), rtol=1e-10, atol=1e-12)


def test_columns_hold_the_windows() -> None:
    params = IM2COL.complete({"batch": 1, "channels": 1, "image": [2, 3], "kernel": [2, 2], "padding": 0})
    found = IM2COL.reference(params, x=np.arange(6.0).reshape(1, 1, 2, 3))
    assert found[0].T.tolist() == [[0, 1, 3, 4], [1, 2, 4, 5]]


def test_cost_by_hand() -> None:
    """3 channels of 7 x 9 pixels with a border of one: 8 x 9 windows of 6 pixels."""
    image, columns = 2 * 3 * 63, 2 * 3 * 6 * 72
    for op, forward, backward in ((IM2COL, 0, columns), (COL2IM, columns, 0)):
        params = op.complete(GIVEN)
        assert op.cost(params).flops == forward
        assert op.backward_cost(params).flops == backward
        moved = {(cost.bytes_read, cost.bytes_written) for cost in (op.cost(params), op.backward_cost(params))}
        assert moved == {(4 * image, 4 * columns), (4 * columns, 4 * image)}


@pytest.mark.parametrize(("change", "param"), [({"kernel": [10, 2]}, "kernel"), ({"image": [7]}, "image")], ids=str)
def test_what_does_not_fit_is_refused(change: dict[str, Any], param: str) -> None:
    for op in (IM2COL, COL2IM):
        with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
            op.check_rules(op.complete({**GIVEN, **change}))


def test_the_names_of_torch_are_known() -> None:
    assert operator("Unfold") is IM2COL
    assert operator("fold") is operator("Fold") is COL2IM
