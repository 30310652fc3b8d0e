"""outer, addr, inner, cross, cdist."""

from __future__ import annotations

import numpy as np
from by_hand import costs_by_hand, names_found, refused_by_name

from opmark.catalogue.operators.products import ADDR, CDIST, CROSS, INNER, OUTER
from opmark.schema import Cost

COSTS = [
    (OUTER, {"M": 2, "N": 3}, Cost(6, 20, 24), Cost(24, 44, 20)),
    # The gradient of the matrix that is added is the incoming one.
    (ADDR, {"M": 2, "N": 3}, Cost(12, 44, 24), Cost(24, 44, 20)),
    (INNER, {"B": 2, "K": 3}, Cost(12, 48, 8), Cost(12, 56, 48)),
    # Six elements, each a difference of two products.
    (CROSS, {"shape": [2, 3]}, Cost(18, 48, 24), Cost(36, 72, 48)),
    # 2 x 3 distances of 4 squares and a root.
    (CDIST, {"M": 2, "N": 3, "K": 4}, Cost(78, 80, 24), Cost(102, 104, 80)),
]
REFUSED = [(CROSS, {"shape": [3, 2]}, "shape"), (CROSS, {"shape": [4]}, "shape")]
ALIASES = [("ger", OUTER), ("vdot", INNER), ("vecdot", INNER), ("linalg_cross", CROSS)]

test_cost_by_hand = costs_by_hand(COSTS)

test_what_cannot_be_is_refused_by_name = refused_by_name(REFUSED)

test_the_names_of_other_systems_are_found = names_found(ALIASES)


def test_distances_by_hand() -> None:
    x, y = np.array([[[0.0, 0.0]]]), np.array([[[3.0, 4.0], [0.0, 1.0]]])
    np.testing.assert_array_equal(CDIST.reference({}, x=x, y=y), [[[5.0, 1.0]]])
