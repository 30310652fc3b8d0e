"""outer, addr, inner, cross, cdist."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.errors import InvalidParameter
from opmark.operators.vectors import ADDR, CDIST, CROSS, INNER, OUTER
from opmark.registry import operator as find_operator
from opmark.schema import Cost, Operator

COSTS = [
    (OUTER, {"M": 2, "N": 3}, Cost(6, 20, 24), Cost(24, 44, 20)),
    (ADDR, {"M": 2, "N": 3}, Cost(12, 44, 24), Cost(24, 68, 44)),
    (INNER, {"B": 2, "K": 3}, Cost(12, 48, 8), Cost(12, 56, 48)),
    # Six elements, each a difference of two products.
    (CROSS, {"shape": [2, 3]}, Cost(18, 48, 24), Cost(36, 72, 48)),
    # 2 x 3 distances of 4 squares and a root.
    (CDIST, {"M": 2, "N": 3, "K": 4}, Cost(78, 80, 24), Cost(102, 104, 80)),
]
REFUSED = [(CROSS, {"shape": [3, 2]}, "shape"), (CROSS, {"shape": [4]}, "shape")]
ALIASES = [("ger", OUTER), ("vdot", INNER), ("vecdot", INNER), ("linalg_cross", CROSS)]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost | None, backward: Cost | None) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize(("op", "given", "blamed"), REFUSED)
def test_what_cannot_be_is_refused_by_name(op: Operator, given: dict[str, Any], blamed: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{blamed}` must"):
        op.check_rules(op.complete(given))


@pytest.mark.parametrize(("alias", "op"), ALIASES)
def test_the_names_of_other_systems_are_found(alias: str, op: Operator) -> None:
    assert find_operator(alias) is op


def test_distances_by_hand() -> None:
    x, y = np.array([[[0.0, 0.0]]]), np.array([[[3.0, 4.0], [0.0, 1.0]]])
    np.testing.assert_array_equal(CDIST.reference({}, x=x, y=y), [[[5.0, 1.0]]])
