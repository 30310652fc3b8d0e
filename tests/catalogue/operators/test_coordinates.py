"""gather_nd, one_hot, ravel_multi_index, unravel_index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_hand import costs_by_hand

from opmark.catalogue.operators.coordinates import GATHER_ND, ONE_HOT, RAVEL_MULTI_INDEX, UNRAVEL_INDEX
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.schema import Cost

COSTS = [
    # 7 rows of 4 elements, each by 2 coordinates of 8 bytes. Back: all of 3 x 5 x 4 elements are written.
    (GATHER_ND, {"shape": [3, 5, 4], "indices": 7}, Cost(0, 28 * 4 + 14 * 8, 112), Cost(28, 224, 240)),
    # 7 rows of 5 elements out of 3: no more than all of them are read.
    (GATHER_ND, {"shape": [3, 5], "depth": 1, "indices": 7}, Cost(0, 15 * 4 + 7 * 8, 140), Cost(35, 196, 60)),
    # 5 indices in, 5 rows of 3 numbers of 8 bytes out.
    (ONE_HOT, {"indices": 5, "depth": 3}, Cost(0, 40, 120), None),
    (RAVEL_MULTI_INDEX, {"shape": [3, 4, 5], "indices": 10}, Cost(0, 240, 80), None),
    (UNRAVEL_INDEX, {"shape": [3, 4, 5], "indices": 10}, Cost(0, 80, 240), None),
]

test_cost_by_hand = costs_by_hand(COSTS)


def test_each_coordinate_lies_within_its_own_axis(torch_cpu: Any) -> None:
    spec = GATHER_ND.inputs(GATHER_ND.complete({"shape": [2, 50, 4], "indices": 1000}))["index"]
    index = torch_cpu.to_numpy(torch_cpu.tensor(spec, 0))
    assert [sorted(set(row.tolist())) for row in index] == [list(range(2)), list(range(50))]


def test_coordinates_and_back_is_where_it_began() -> None:
    params = RAVEL_MULTI_INDEX.complete({"shape": [3, 4, 5], "indices": 60})
    flat = np.arange(60)
    index = np.stack(UNRAVEL_INDEX.reference(params, index=flat))
    assert index[:, 7].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(RAVEL_MULTI_INDEX.reference(params, index=index), flat)


def test_a_row_is_hot_at_its_index() -> None:
    params = ONE_HOT.complete({"indices": 2, "depth": 3})
    assert ONE_HOT.reference(params, index=np.array([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]


REFUSED = [
    (GATHER_ND, {"shape": [3, 4], "depth": 3, "indices": 1}, r"`depth` must be at most .*\[3, 4\] \(got 3\)"),
    (UNRAVEL_INDEX, {"shape": [2**40, 2**40], "indices": 1}, r"`shape` must have at most 2\^62 elements"),
]


@pytest.mark.parametrize(("op", "given", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(op: Operator, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        op.check_rules(op.complete(given))
