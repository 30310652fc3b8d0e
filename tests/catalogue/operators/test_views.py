"""Views of a whole tensor."""

from __future__ import annotations

import numpy as np
from by_hand import costs_by_hand, names_found, refused_by_name

from opmark.catalogue.operators.views import BROADCAST_TO, EXPAND_DIMS, FLATTEN, PERMUTE, RESHAPE, SQUEEZE, SWAPAXES
from opmark.schema import Cost

COSTS = [
    (RESHAPE, {"shape": [2, 6], "target": [3, 4]}, None, None),
    (PERMUTE, {"shape": [2, 3], "axes": [1, 0]}, None, None),
    # Each of 3 elements goes to 5 places: 15 are read, and 4 sums give the gradient of each.
    (BROADCAST_TO, {"shape": [1, 3], "target": [5, 3]}, None, Cost(12, 60, 12)),
]
REFUSED = [
    (RESHAPE, {"shape": [2, 6], "target": [5, 2]}, "target"),
    (FLATTEN, {"shape": [5]}, "shape"),
    (EXPAND_DIMS, {"shape": [5, 7], "axis": 3}, "axis"),
    (EXPAND_DIMS, {"shape": [5, 7], "axis": -4}, "axis"),
    (SQUEEZE, {"shape": [5, 7], "axis": 2}, "axis"),
    (SQUEEZE, {"shape": [5, 7], "axis": 1}, "axis"),
    (SWAPAXES, {"shape": [5, 7], "axis1": 2}, "axis1"),
    (SWAPAXES, {"shape": [5, 7], "axis2": -3}, "axis2"),
    (PERMUTE, {"shape": [5, 7], "axes": [0, 0]}, "axes"),
    (PERMUTE, {"shape": [5, 7], "axes": [0, 1, 2]}, "axes"),
    (BROADCAST_TO, {"shape": [5, 7], "target": [7]}, "target"),
    (BROADCAST_TO, {"shape": [5, 7], "target": [10, 7]}, "target"),
]
ALIASES = [
    ("reshape_like", RESHAPE), ("Flatten", FLATTEN), ("unsqueeze", EXPAND_DIMS), ("SwapAxis", SWAPAXES),
    ("broadcast_axis", BROADCAST_TO), ("broadcast_like", BROADCAST_TO), ("expand", BROADCAST_TO),
]  # fmt: skip

test_cost_by_hand = costs_by_hand(COSTS)

test_what_cannot_be_is_refused_by_name = refused_by_name(REFUSED)

test_the_names_of_other_systems_are_found = names_found(ALIASES)


def test_no_axes_reverse_them_all() -> None:
    assert PERMUTE.reference(PERMUTE.complete({"shape": [2, 3, 5]}), x=np.ones((2, 3, 5))).shape == (5, 3, 2)
