"""max_unpool1d, max_unpool2d, max_unpool3d."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.errors import InvalidParameter
from opmark.plugin.registry import operator

GIVEN: dict[str, Any] = {"batch": 2, "channels": 3, "image": [7, 10], "kernel": [3, 2]}


def test_indices_lie_in_their_windows(numpy_cpu: Any) -> None:
    op = operator("max_unpool2d")
    indices = numpy_cpu.tensor(op.inputs(op.complete(GIVEN))["indices"], 0)
    row, column = np.unravel_index(indices, (7, 10))
    assert (row // 3 == np.arange(2)[:, None]).all()
    assert (column // 2 == np.arange(5)).all()


def test_it_undoes_a_max_pool() -> None:
    op = operator("max_unpool2d")
    x = torch.rand(2, 3, 7, 10, dtype=torch.float64) + 1
    values, indices = torch.nn.functional.max_pool2d(x, (3, 2), return_indices=True)
    back = op.reference(op.complete({**GIVEN, "dtype": "float64"}), x=values.numpy(), indices=indices.numpy())
    kept = back != 0
    np.testing.assert_array_equal(back[kept], x.numpy()[kept])
    assert kept.sum() == values.numel()


def test_cost_by_hand() -> None:
    """2 x 3 images of 7 x 10 pixels with 2 x 5 windows each; an index has 8 bytes."""
    op = operator("max_unpool2d")
    params = op.complete(GIVEN)
    forward, backward = op.cost(params), op.backward_cost(params)
    assert (forward.flops, forward.bytes_read, forward.bytes_written) == (0, 60 * 12, 420 * 4)
    assert (backward.flops, backward.bytes_read, backward.bytes_written) == (0, 60 * 12, 60 * 4)


@pytest.mark.parametrize(("change", "param"), [({"kernel": [8, 2]}, "kernel"), ({"image": [7]}, "image")], ids=str)
def test_what_does_not_fit_is_refused(change: dict[str, Any], param: str) -> None:
    op = operator("max_unpool2d")
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        op.check_rules(op.complete({**GIVEN, **change}))
