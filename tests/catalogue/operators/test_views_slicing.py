"""Views of parts of a tensor."""

from __future__ import annotations

import numpy as np
from by_hand import costs_by_hand, names_found, refused_by_name

from opmark.catalogue.operators.views import AS_STRIDED, DIAGONAL, NARROW, SELECT, SLICE, UNFOLD
from opmark.schema import Cost

COSTS = [
    # Columns 1, 3 and 5 of 7, in 5 rows: 15 gradients are read, 35 written.
    (SLICE, {"shape": [5, 7], "begin": 1, "end": 7, "step": 2}, None, Cost(0, 60, 140)),
    (NARROW, {"shape": [5, 7], "start": 2, "length": 3}, None, Cost(0, 60, 140)),
    (SELECT, {"shape": [5, 7]}, None, Cost(0, 20, 140)),
    (DIAGONAL, {"shape": [2, 5, 7], "k": 4}, None, Cost(0, 24, 280)),
    # Windows of 4 that begin at 0, 2, 4, 6: 16 elements.
    (UNFOLD, {"shape": [11], "length": 4, "step": 2}, None, Cost(16, 64, 44)),
    (AS_STRIDED, {"shape": [20], "size": [4, 6], "strides": [2, 1]}, None, Cost(24, 96, 80)),
]
REFUSED = [
    (SLICE, {"shape": [5, 7], "begin": 0, "end": 8}, "end"),
    (SLICE, {"shape": [5, 7], "begin": 3, "end": 3}, "begin"),
    (SLICE, {"shape": [5, 7], "begin": 0, "end": 3, "axis": 2}, "axis"),
    (NARROW, {"shape": [5, 7], "start": 5, "length": 3}, "length"),
    (SELECT, {"shape": [5, 7], "index": 7}, "index"),
    (SELECT, {"shape": [5]}, "shape"),
    (DIAGONAL, {"shape": [5]}, "shape"),
    (DIAGONAL, {"shape": [5, 7], "k": 7}, "k"),
    (DIAGONAL, {"shape": [5, 7], "k": -5}, "k"),
    (UNFOLD, {"shape": [5, 7], "length": 8}, "length"),
    (AS_STRIDED, {"shape": [20], "size": [4, 6], "strides": [2]}, "strides"),
    (AS_STRIDED, {"shape": [20], "size": [4, 6], "strides": [5, 1]}, "size"),
    (AS_STRIDED, {"shape": [20], "size": [4, 6], "strides": [2, 1], "offset": 9}, "size"),
]
ALIASES = [("slice_axis", SLICE), ("slice_like", SLICE)]

test_cost_by_hand = costs_by_hand(COSTS)

test_what_cannot_be_is_refused_by_name = refused_by_name(REFUSED)

test_the_names_of_other_systems_are_found = names_found(ALIASES)


def test_the_last_element_that_strides_may_reach_is_the_last_of_the_tensor() -> None:
    params = AS_STRIDED.complete({"shape": [20], "size": [4, 6], "strides": [2, 1], "offset": 8})
    AS_STRIDED.check_rules(params)
    assert AS_STRIDED.reference(params, x=np.arange(20.0))[-1, -1] == 19
