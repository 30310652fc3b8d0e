"""l2_normalize, lrn, weight_norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from opmark.catalogue.operators.normalization import L2_NORMALIZE, LRN, WEIGHT_NORM
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

X = np.random.default_rng(0).uniform(-3, 3, (2, 6, 3, 4))
SHAPE = {"shape": [2, 3, 4], "dtype": "float32"}

COSTS = [
    # 24 elements. Square, sum, quotient. Back: x and the gradient.
    (L2_NORMALIZE, SHAPE, Cost(72, 96, 96), Cost(168, 192, 96)),
    (LRN, SHAPE, Cost(168, 96, 96), Cost(336, 192, 96)),
    # Two lengths are read too, and have a gradient.
    (WEIGHT_NORM, SHAPE, Cost(72, 104, 96), Cost(168, 200, 104)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize(("mode", "axes"), [("channel", (1,)), ("instance", (1, 2, 3)), ("spatial", (2, 3))])
def test_the_length_is_one_over_the_axes_of_a_mode(mode: str, axes: tuple[int, ...]) -> None:
    params = L2_NORMALIZE.complete({"shape": list(X.shape), "mode": mode})
    found = L2_NORMALIZE.reference(params, x=X)
    np.testing.assert_allclose(np.square(found).sum(axis=axes), 1.0, rtol=1e-12)
    assert (np.sign(found) == np.sign(X)).all()


def test_a_short_vector_is_divided_by_eps_only() -> None:
    params = L2_NORMALIZE.complete({"shape": [1, 2], "eps": 10.0})
    assert L2_NORMALIZE.reference(params, x=np.array([[3.0, 4.0]])).tolist() == [[0.3, 0.4]]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 11])
def test_the_window_of_lrn_is_that_of_torch(size: int) -> None:
    params = LRN.complete({"shape": list(X.shape), "size": size, "alpha": 1.5, "beta": 0.6, "k": 2.0})
    expected = functional.local_response_norm(torch.from_numpy(X), size, 1.5, 0.6, 2.0)
    np.testing.assert_allclose(LRN.reference(params, x=X), expected, rtol=1e-12)


def test_rows_of_weights_have_the_length_that_was_given() -> None:
    params = WEIGHT_NORM.complete({"shape": list(X.shape)})
    assert WEIGHT_NORM.inputs(params)["g"].shape == (2, 1, 1, 1)
    found = WEIGHT_NORM.reference(params, v=X, g=np.array([0.5, 7.0]).reshape(2, 1, 1, 1))
    np.testing.assert_allclose(np.sqrt(np.square(found).sum(axis=(1, 2, 3))), [0.5, 7.0], rtol=1e-12)


@pytest.mark.parametrize(
    ("op", "given", "param"),
    [
        (L2_NORMALIZE, {"shape": [7]}, "mode"),
        (L2_NORMALIZE, {"shape": [7, 5], "mode": "spatial"}, "mode"),
        (L2_NORMALIZE, {"shape": [7, 1, 5], "mode": "channel"}, "shape"),
        (LRN, {"shape": [7, 5]}, "shape"),
        (LRN, {"shape": [7, 5, 3], "k": 0.0}, "k"),
        (WEIGHT_NORM, {"shape": [7]}, "shape"),
        (WEIGHT_NORM, {"shape": [7, 1]}, "shape"),
    ],
)
def test_what_cannot_be_normalised_is_refused(op: Operator, given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        op.check_rules(op.complete(given))


@pytest.mark.parametrize(
    ("alias", "name"), [("L2Normalization", "l2_normalize"), ("LRN", "lrn"), ("local_response_norm", "lrn")]
)
def test_names_of_other_systems_are_found(alias: str, name: str) -> None:
    assert operator(alias).name == name
