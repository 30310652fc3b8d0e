"""Cumulative sums, products and extrema; differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.scan import CUMMAX, CUMMIN, CUMPROD, CUMSUM, DIFF, LOGCUMSUMEXP, OPERATORS
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.schema import Cost

X = np.random.default_rng(0).uniform(-1, 1, (4, 5, 6))

COSTS = [
    (CUMSUM, {"shape": [3, 4]}, Cost(12, 48, 48), Cost(12, 48, 48)),
    # Back: the gradient, x and the result.
    (CUMPROD, {"shape": [3, 4]}, Cost(12, 48, 48), Cost(36, 144, 48)),
    # 12 values and 12 indices out; back, 12 gradients with their indices.
    (CUMMAX, {"shape": [3, 4]}, Cost(0, 48, 144), Cost(12, 144, 48)),
    (CUMMIN, {"shape": [3, 4], "dtype": "float16"}, Cost(0, 24, 120), Cost(12, 120, 24)),
    (LOGCUMSUMEXP, {"shape": [3, 4]}, Cost(36, 48, 48), Cost(48, 144, 48)),
    # 3 differences a row of 4; back, the 2 in the middle of each row take from two.
    (DIFF, {"shape": [3, 4]}, Cost(9, 48, 36), Cost(6, 36, 48)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
@pytest.mark.parametrize("axis", [-3, 1, 2])
def test_the_reference_is_that_of_torch(op: Operator, axis: int) -> None:
    params = op.complete({"shape": list(X.shape), "axis": axis, "dtype": "float64"})
    due = getattr(torch, op.name)(torch.from_numpy(X), dim=axis)
    found = op.reference(params, x=X)
    if isinstance(found, tuple):
        found, due = found[0], due[0]
    np.testing.assert_allclose(found, due, rtol=1e-12)


@pytest.mark.parametrize("op", [CUMMAX, CUMMIN], ids=lambda op: op.name)
def test_numpy_finds_the_same_places_as_torch(op: Operator) -> None:
    x = np.round(X * 2)  # with many equal values
    params = op.complete({"shape": list(x.shape), "axis": 2, "dtype": "float64"})
    (implementation,) = op.implementations_for("numpy")
    due = getattr(torch, op.name)(torch.from_numpy(x), dim=2)
    for found, expected in zip(implementation.build(params, x=x)(), due, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_an_equal_element_that_comes_later_is_not_what_was_found() -> None:
    x = np.array([2.0, 1.0, 2.0])
    params = CUMMAX.complete({"shape": [3]})
    CUMMAX.observe(params, (np.full(3, 2.0), np.array([0, 0, 2])), x=x)
    with pytest.raises(IndexError, match="later"):
        CUMMAX.observe(params, (np.full(3, 2.0), np.array([0, 2, 2])), x=x)


def test_a_difference_takes_two() -> None:
    DIFF.check_rules(DIFF.complete({"shape": [1, 2]}))
    with pytest.raises(InvalidParameter, match=r"`shape` must have at least 2 elements along axis 0 \(got \[1, 2\]\)"):
        DIFF.check_rules(DIFF.complete({"shape": [1, 2], "axis": 0}))


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_an_axis_that_does_not_exist_is_refused(op: Operator) -> None:
    with pytest.raises(InvalidParameter, match=r"`axis` must .*\[2, 3\] \(got 2\)"):
        op.check_rules(op.complete({"shape": [2, 3], "axis": 2}))
