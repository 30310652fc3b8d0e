"""Operators that move data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from by_hand import costs_by_hand, names_found, refused_by_name

from opmark.catalogue.operators.layout import (  # fmt: skip
    BROADCAST_COPY,
    CHANNEL_SHUFFLE,
    DEPTH_TO_SPACE,
    FLIP,
    REPEAT,
    ROLL,
    ROT90,
    SHAPE_ARRAY,
    SIZE_ARRAY,
    SPACE_TO_DEPTH,
    TILE,
    TRANSPOSE,
)
from opmark.errors import InvalidParameter
from opmark.schema import Cost

COSTS = [
    (TRANSPOSE, {"shape": [5, 7]}, Cost(0, 140, 140), None),
    (FLIP, {"shape": [5, 7], "dtype": "float16"}, Cost(0, 70, 70), Cost(0, 70, 70)),
    # Each of 35 elements goes to 6 places; backwards 5 sums for each.
    (TILE, {"shape": [5, 7], "reps": [3, 2]}, Cost(0, 140, 840), Cost(175, 840, 140)),
    (REPEAT, {"shape": [5, 7], "repeats": 6}, Cost(0, 140, 840), Cost(175, 840, 140)),
    (BROADCAST_COPY, {"shape": [1, 3], "target": [5, 3]}, Cost(0, 12, 60), Cost(12, 60, 12)),
    (SHAPE_ARRAY, {"shape": [5, 7]}, None, None),
]
REFUSED = [
    (TRANSPOSE, {"shape": [5, 7], "axes": [1]}, "axes"),
    (TRANSPOSE, {"shape": [5, 7], "axes": [0, 1]}, "axes"),
    (TRANSPOSE, {"shape": [1, 7]}, "axes"),
    (FLIP, {"shape": [5, 7], "axis": 2}, "axis"),
    (ROLL, {"shape": [5, 7], "axis": -3}, "axis"),
    (ROT90, {"shape": [5]}, "shape"),
    (REPEAT, {"shape": [5, 7], "axis": 2}, "axis"),
    (BROADCAST_COPY, {"shape": [2, 7], "target": [4, 7]}, "target"),
    (DEPTH_TO_SPACE, {"shape": [4, 4, 4]}, "shape"),
    (DEPTH_TO_SPACE, {"shape": [1, 6, 4, 4]}, "block"),
    (DEPTH_TO_SPACE, {"shape": [1, 4, 4, 4], "block": 1}, "block"),
    (SPACE_TO_DEPTH, {"shape": [1, 4, 4, 5]}, "block"),
    (CHANNEL_SHUFFLE, {"shape": [1, 6, 2, 2], "groups": 4}, "groups"),
    (CHANNEL_SHUFFLE, {"shape": [1, 6, 2, 2], "groups": 1}, "groups"),
    (CHANNEL_SHUFFLE, {"shape": [1, 6, 2, 2], "groups": 6}, "groups"),
]
ALIASES = [
    ("reverse", FLIP), ("repeat_interleave", REPEAT), ("pixel_shuffle", DEPTH_TO_SPACE),
    ("pixel_unshuffle", SPACE_TO_DEPTH), ("contiguous", TRANSPOSE),
]  # fmt: skip

test_cost_by_hand = costs_by_hand(COSTS)

test_what_cannot_be_is_refused_by_name = refused_by_name(REFUSED)

test_the_names_of_other_systems_are_found = names_found(ALIASES)


def test_the_order_that_other_systems_measure_by_default_is_refused_with_its_reason() -> None:
    """Transposing by the axes (0, 1) moves nothing."""
    with pytest.raises(InvalidParameter, match="change the order"):
        TRANSPOSE.check_rules(TRANSPOSE.complete({"shape": [1024, 1024], "axes": [0, 1]}))


@pytest.mark.parametrize("order", ["crd", "dcr"])
def test_depth_and_space_are_inverse_to_each_other(order: str) -> None:
    x = np.arange(2 * 8 * 3 * 5.0).reshape(2, 8, 3, 5)
    params = {"block": 2, "order": order}
    space = DEPTH_TO_SPACE.reference(params, x=x)
    assert space.shape == (2, 2, 6, 10)
    np.testing.assert_array_equal(SPACE_TO_DEPTH.reference(params, x=space), x)


def test_the_order_of_mxnet_and_onnx_takes_channels_of_a_block_far_apart() -> None:
    """Four channels of two blocks: the upper left corner of the first is channel 0, its right neighbour channel 2."""
    x = np.arange(8.0).reshape(1, 8, 1, 1)
    first = DEPTH_TO_SPACE.reference({"block": 2, "order": "dcr"}, x=x)[0, 0]
    np.testing.assert_array_equal(first, [[0, 2], [4, 6]])
    first = DEPTH_TO_SPACE.reference({"block": 2, "order": "crd"}, x=x)[0, 0]
    np.testing.assert_array_equal(first, [[0, 1], [2, 3]])


def test_repeating_elements_is_not_repeating_the_tensor() -> None:
    x = np.array([1.0, 2.0])
    np.testing.assert_array_equal(REPEAT.reference({"repeats": 2, "axis": 0}, x=x), [1, 1, 2, 2])
    np.testing.assert_array_equal(TILE.reference({"reps": [2]}, x=x), [1, 2, 1, 2])


def test_shape_and_size_are_whole_numbers() -> None:
    x = torch.zeros(3, 5)
    for op, due in ((SHAPE_ARRAY, [3, 5]), (SIZE_ARRAY, [15])):
        (implementation,) = op.implementations_for("torch")
        found = implementation.build(op.complete({"shape": [3, 5]}), x=x)()
        assert found.dtype == torch.int64
        assert found.tolist() == due
