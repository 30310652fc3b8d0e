"""pad."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import costs_by_hand, refused_by_name

from opmark.catalogue.operators.layout import PAD
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Cost

COSTS = [
    # 5 x 7 becomes 8 x 9; of the gradient only the inside is read.
    (PAD, {"shape": [5, 7], "before": [0, 2], "after": [3, 0]}, Cost(0, 140, 288), Cost(0, 140, 140)),
    # What lies inside is repeated outside: all is read, 37 x 2 elements are added to others.
    (
        PAD,
        {"shape": [2, 5, 7], "before": [0, 2], "after": [3, 0], "mode": "reflect"},
        Cost(0, 280, 576),
        Cost(74, 576, 280),
    ),
]
BOTH = {"before": [1, 1], "after": [1, 1]}
REFUSED = [
    (PAD, {"shape": [5], **BOTH}, "before"),
    (PAD, {"shape": [5, 7], "before": [], "after": []}, "before"),
    (PAD, {"shape": [5, 7], "before": [0, 0], "after": [0, 0]}, "before"),
    (PAD, {"shape": [5, 7], "before": [1, 1], "after": [1]}, "after"),
    (PAD, {"shape": [5, 7], **BOTH, "mode": "reflect"}, "mode"),
    (PAD, {"shape": [2, 3, 5], "before": [5], "after": [0], "mode": "reflect"}, "before"),
    (PAD, {"shape": [2, 3, 5], "before": [0], "after": [6], "mode": "circular"}, "before"),
]

test_cost_by_hand = costs_by_hand(COSTS)

test_what_cannot_be_is_refused_by_name = refused_by_name(REFUSED)


MODES = [("constant", [0, 0, 1, 2, 3]), ("reflect", [3, 2, 1, 2, 3]), ("replicate", [1, 1, 1, 2, 3]),
         ("circular", [2, 3, 1, 2, 3])]  # fmt: skip


@pytest.mark.parametrize(("mode", "due"), MODES)
def test_what_is_around(mode: str, due: list[int]) -> None:
    params = PAD.complete({"shape": [1, 3], "before": [2], "after": [0], "mode": mode})
    PAD.check_rules(params)
    np.testing.assert_array_equal(PAD.reference(params, x=np.array([[1.0, 2.0, 3.0]])), [due])


def test_an_axis_goes_around_at_most_once() -> None:
    """At most the whole axis may be put in front of itself."""
    PAD.check_rules(PAD.complete({"shape": [2, 3, 5], "before": [5], "after": [0], "mode": "circular"}))
    PAD.check_rules(PAD.complete({"shape": [2, 3, 5], "before": [4], "after": [4], "mode": "reflect"}))


def test_the_other_names_of_padding_are_found() -> None:
    assert find_operator("Pad") is PAD
    assert find_operator("constant_pad_nd") is PAD
