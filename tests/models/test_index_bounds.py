"""Values that operators accept: indices inside of what they point into, and probabilities."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from opmark.models.index_bounds import ValueBounds, value_bounds


class Shaped(NamedTuple):
    shape: tuple[int, ...]
    mask: bool = False


def bounds(name, *args):
    return value_bounds(name, args, lambda one: one.shape if isinstance(one, Shaped) else None, lambda one: one.mask)


TABLE, INDICES = Shaped((100, 8)), Shaped((5,))


@pytest.mark.parametrize(
    ("name", "args", "place", "high"),
    [
        ("embedding", [TABLE, INDICES], (1,), 100),
        ("aten::embedding_dense_backward.default", [Shaped((5, 8)), INDICES, 30522, -1, False], (1,), 30522),
        ("aten.gather.default", [TABLE, -1, Shaped((100, 3))], (2,), 8),
        ("scatter_add_", [TABLE, 0, INDICES, INDICES], (2,), 100),
        ("nll_loss_forward", [Shaped((64, 1000)), Shaped((64,)), None, 1, -100], (1,), 1000),
        ("nll_loss_forward", [Shaped((10,)), Shaped(()), None, 1, -100], (1,), 10),
        ("nll_loss2d_backward", [Shaped(()), Shaped((2, 21, 8, 8)), Shaped((2, 8, 8))], (2,), 21),
        ("max_pool2d_with_indices_backward",
         [Shaped((1, 3, 4, 4)), Shaped((1, 3, 8, 9)), [2, 2], [2, 2], [0, 0], [1, 1], False, Shaped((1, 3, 4, 4))],
         (7,), 72),
        ("max_unpool2d", [Shaped((1, 3, 4, 4)), Shaped((1, 3, 4, 4)), [8, 8]], (1,), 64),
        ("value_selecting_reduction_backward", [Shaped((4,)), 1, Shaped((4,)), [4, 7], False], (2,), 7),
        ("take", [TABLE, INDICES], (1,), 800),
        ("index_select", [Shaped(()), 0, INDICES], (2,), 1),
    ],
)  # fmt: skip
def test_indices_stay_inside_of_what_they_point_into(name, args, place, high):
    assert bounds(name, *args) == {place: ValueBounds(0, high)}


def test_a_list_of_indices_has_one_axis_each_and_a_mask_several():
    x = Shaped((3, 4, 5, 6))
    assert bounds("index.Tensor", x, [None, INDICES, INDICES]) == {
        (1, 1): ValueBounds(0, 4),
        (1, 2): ValueBounds(0, 5),
    }
    assert bounds("index_put_", x, [Shaped((3, 4), mask=True), INDICES], INDICES) == {(1, 1): ValueBounds(0, 5)}


def test_offsets_of_bags_are_sorted_and_below_the_number_of_indices():
    found = bounds("_embedding_bag.default", TABLE, Shaped((50,)), Shaped((5,)))
    assert found == {(1,): ValueBounds(0, 100), (2,): ValueBounds(0, 50, "offsets")}


def test_probabilities_are_floats_from_0_to_1():
    found = bounds("binary_cross_entropy", INDICES, INDICES, None, 1)
    assert found == {(0,): ValueBounds(0.0, 1.0, floats=True), (1,): ValueBounds(0.0, 1.0, floats=True)}


def test_calls_without_such_arguments_or_with_too_few_have_no_bounds():
    assert bounds("add.Tensor", TABLE, TABLE) == {}
    assert bounds("gather", TABLE) == {}
    assert bounds("index.Tensor", TABLE, INDICES) == {}
