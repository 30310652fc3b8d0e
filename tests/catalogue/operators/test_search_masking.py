"""where, masked_fill, masked_select."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.search import MASKED_FILL, MASKED_SELECT, WHERE
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.schema import Cost

COSTS = [
    # Two tensors of 12 elements and 12 truth values of a byte in, one out; back, the gradient goes to either of two.
    (WHERE, {"shape": [3, 4]}, Cost(0, 108, 48), Cost(0, 60, 96)),
    (MASKED_FILL, {"shape": [3, 4]}, Cost(0, 60, 48), Cost(0, 60, 48)),
    # A quarter of 12 is selected.
    (MASKED_SELECT, {"shape": [3, 4], "density": 0.25}, Cost(0, 60, 12), Cost(0, 24, 48)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_as_many_are_selected_as_the_cost_says(density: float, torch_cpu: Any) -> None:
    params = MASKED_SELECT.complete({"shape": [33, 7], "density": density})
    mask = torch_cpu.to_numpy(torch_cpu.tensor(MASKED_SELECT.inputs(params)["mask"], 0))
    assert mask.sum() * 4 == MASKED_SELECT.cost(params).bytes_written
    assert mask.sum() == max(1, int(33 * 7 * density))


def test_a_value_goes_where_the_mask_is_true() -> None:
    params = MASKED_FILL.complete({"shape": [2], "value": 7.0})
    assert MASKED_FILL.reference(params, x=np.array([1.0, 2.0]), mask=np.array([False, True])).tolist() == [1.0, 7.0]


def test_no_more_than_everything_can_be_selected() -> None:
    with pytest.raises(InvalidParameter, match=r"`density` must be at most 1 \(got 2.0\)"):
        MASKED_SELECT.check_rules(MASKED_SELECT.complete({"shape": [2], "density": 2.0}))
