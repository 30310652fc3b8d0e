"""Joining and splitting."""

from __future__ import annotations

import numpy as np
from by_hand import costs_by_hand, names_found, refused_by_name

from opmark.catalogue.operators.concatenation import (
    BLOCK_DIAG,
    CHUNK,
    CONCAT,
    MESHGRID,
    SPLIT,
    SPLIT_COPY,
    STACK,
    UNBIND,
)
from opmark.schema import Cost

COSTS = [
    (CONCAT, {"shape": [5, 7], "count": 4}, Cost(0, 560, 560), None),
    (STACK, {"shape": [5, 7], "count": 4, "dtype": "int8"}, Cost(0, 140, 140), None),
    # Four blocks of 6 elements in a matrix of 8 x 12.
    (BLOCK_DIAG, {"shape": [2, 3], "count": 4}, Cost(0, 96, 384), None),
    # The gradients of parts are written together.
    (SPLIT, {"shape": [5, 8]}, None, Cost(0, 160, 160)),
    (CHUNK, {"shape": [5, 7]}, None, Cost(0, 140, 140)),
    (UNBIND, {"shape": [5, 7]}, None, Cost(0, 140, 140)),
    (SPLIT_COPY, {"shape": [5, 8]}, Cost(0, 160, 160), Cost(0, 160, 160)),
    # Two matrices of 2 x 3: sums of 3 elements for each x, of 2 for each y.
    (MESHGRID, {"M": 2, "N": 3}, None, Cost(2 * 2 + 3 * 1, 48, 20)),
]
REFUSED = [
    (CONCAT, {"shape": [5, 7], "axis": 2}, "axis"),
    (STACK, {"shape": [5, 7], "axis": 3}, "axis"),
    (STACK, {"shape": [5, 7], "axis": -4}, "axis"),
    (BLOCK_DIAG, {"shape": [5]}, "shape"),
    (SPLIT, {"shape": [5, 7], "parts": 2}, "parts"),
    (SPLIT, {"shape": [5, 7], "axis": 5}, "axis"),
    (CHUNK, {"shape": [5, 7], "parts": 8}, "parts"),
    (UNBIND, {"shape": [7], "axis": 0}, "shape"),
    (SPLIT_COPY, {"shape": [5, 7], "parts": 3}, "parts"),
]
ALIASES = [("cat", CONCAT), ("Concat", CONCAT), ("vstack", CONCAT), ("SliceChannel", SPLIT), ("unstack", UNBIND)]

test_cost_by_hand = costs_by_hand(COSTS)

test_what_cannot_be_is_refused_by_name = refused_by_name(REFUSED)

test_the_names_of_other_systems_are_found = names_found(ALIASES)


def test_the_last_chunk_is_what_is_left() -> None:
    params = CHUNK.complete({"shape": [7], "parts": 3, "axis": 0})
    assert [len(part) for part in CHUNK.reference(params, x=np.arange(7.0))] == [3, 3, 1]


def test_there_may_be_fewer_chunks_than_parts() -> None:
    """Torch splits five places into four chunks by twos, which gives three."""
    params = CHUNK.complete({"shape": [5], "parts": 4, "axis": 0})
    assert [len(part) for part in CHUNK.reference(params, x=np.arange(5.0))] == [2, 2, 1]
