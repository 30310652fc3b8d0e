"""Global and adaptive pools."""

from __future__ import annotations

from itertools import product
from math import ceil, floor
from typing import Any

import numpy as np
import pytest

from opmark.errors import InvalidParameter
from opmark.plugin.registry import operator

IMAGES = {1: [11], 2: [7, 10], 3: [5, 4, 7]}
KINDS = ("max", "avg", "sum")


@pytest.mark.parametrize(("kind", "dims"), list(product(("max", "avg"), IMAGES)))
def test_a_global_pool_is_an_adaptive_one_with_one_window(kind: str, dims: int) -> None:
    given = {"batch": 2, "channels": 3, "image": IMAGES[dims]}
    whole, adaptive = operator(f"global_{kind}_pool{dims}d"), operator(f"adaptive_{kind}_pool{dims}d")
    params, same = whole.complete(given), adaptive.complete({**given, "out": [1] * dims})
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, *IMAGES[dims]))
    np.testing.assert_allclose(whole.reference(params, x=x), adaptive.reference(same, x=x), rtol=1e-12, atol=1e-14)
    for phase in ("forward", "backward"):
        assert whole.phase_cost(params, phase) == adaptive.phase_cost(same, phase)


@pytest.mark.parametrize("out", [[3, 4], [7, 10], [9, 3], [1, 1]], ids=str)
def test_values_of_all_windows_are_counted(out: list[int]) -> None:
    """7 x 10 pixels: where sizes do not divide, windows overlap."""
    windows = [
        (ceil((i + 1) * 7 / out[0]) - floor(i * 7 / out[0])) * (ceil((j + 1) * 10 / out[1]) - floor(j * 10 / out[1]))
        for i, j in product(range(out[0]), range(out[1]))
    ]
    op = operator("adaptive_avg_pool2d")
    params = op.complete({"batch": 2, "channels": 3, "image": [7, 10], "out": out})
    assert op.cost(params).flops == 6 * sum(windows)
    assert op.backward_cost(params).flops == 6 * (sum(windows) + len(windows))


@pytest.mark.parametrize(("kind", "flops"), [("max", 0), ("avg", 6 * 70), ("sum", 6 * 69)])
def test_cost_of_a_global_pool_by_hand(kind: str, flops: int) -> None:
    op = operator(f"global_{kind}_pool2d")
    cost = op.cost(op.complete({"batch": 2, "channels": 3, "image": [7, 10]}))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (flops, 4 * 420, 4 * 6)


@pytest.mark.parametrize(("change", "param"), [({"image": [7]}, "image"), ({"out": [3, 3, 3]}, "out")], ids=str)
def test_a_wrong_number_of_axes_is_refused(change: dict[str, Any], param: str) -> None:
    op = operator("adaptive_max_pool2d")
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must have two sizes"):
        op.check_rules(op.complete({"batch": 2, "channels": 3, "image": [7, 10], "out": [3, 3], **change}))


def test_names_of_other_systems_are_known() -> None:
    for dims, kind in product(IMAGES, KINDS):
        assert operator(f"Global{kind.title()}Pool{dims}D") is operator(f"global_{kind}_pool{dims}d")
    assert operator("AdaptiveAvgPool2d") is operator("adaptive_avg_pool2d")
