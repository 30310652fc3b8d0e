"""Sums, means, products and norms along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from by_hand import costs_by_hand

from opmark.catalogue.operators.reduction import (
    LOGSUMEXP,
    NANMEAN,
    NANPROD,
    NANSUM,
    NORM,
    OPERATORS,
    PROD,
    REDUCE_MEAN,
    REDUCE_SUM,
    STD,
    VAR,
)
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

X = np.random.default_rng(0).uniform(-1, 1, (4, 5, 6))

COSTS = [
    # 12 elements, one addition each, 3 sums out. Back there is nothing to compute.
    (REDUCE_SUM, {"shape": [3, 4], "dtype": "float32"}, Cost(12, 48, 12), None),
    (REDUCE_SUM, {"shape": [3, 4], "axis": 0, "dtype": "float16"}, Cost(12, 24, 8), None),
    # Whole numbers of 4 bytes are added up in 8.
    (REDUCE_SUM, {"shape": [3, 4], "dtype": "int32"}, Cost(12, 48, 24), None),
    # A quotient for each of 3 means; back, 3 gradients are divided and spread over 12 elements.
    (REDUCE_MEAN, {"shape": [3, 4]}, Cost(15, 48, 12), Cost(3, 12, 48)),
    # Back: 12 elements, 3 products and 3 gradients in; a product and a quotient an element.
    (PROD, {"shape": [3, 4]}, Cost(12, 48, 12), Cost(24, 72, 48)),
    (NANSUM, {"shape": [3, 4], "dtype": "float64"}, Cost(12, 96, 24), Cost(0, 120, 96)),
    # 4 operations an element, and a quotient and a difference for each of 3 rows; a root more for the deviation.
    (VAR, {"shape": [3, 4]}, Cost(54, 48, 12), Cost(42, 60, 48)),
    (STD, {"shape": [3, 4]}, Cost(57, 48, 12), Cost(45, 72, 48)),
    (NORM, {"shape": [3, 4]}, Cost(27, 48, 12), Cost(15, 72, 48)),
    (LOGSUMEXP, {"shape": [3, 4]}, Cost(42, 48, 12), Cost(36, 72, 48)),
]

test_cost_by_hand = costs_by_hand(COSTS)


TORCH = {
    "reduce_sum": torch.sum,
    "reduce_mean": torch.mean,
    "prod": torch.prod,
    "var": torch.var,
    "std": torch.std,
    "logsumexp": torch.logsumexp,
}


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", range(-3, 3))
@pytest.mark.parametrize("name", TORCH)
def test_the_reference_is_that_of_torch_on_every_axis(name: str, axis: int, keepdims: bool) -> None:
    op = operator(name)
    expected = TORCH[name](torch.from_numpy(X), dim=axis, keepdim=keepdims)
    params = op.complete({"shape": list(X.shape), "axis": axis, "keepdims": keepdims, "dtype": "float64"})
    np.testing.assert_allclose(op.reference(params, x=X), expected, rtol=1e-12)
    assert op.cost(params).bytes_written == expected.nbytes


@pytest.mark.parametrize("ord_", [1, 2])
def test_the_norm_is_that_of_its_order(ord_: int) -> None:
    params = NORM.complete({"shape": [2, 2], "ord": ord_})
    expected = {1: [7.0, 3.0], 2: [5.0, 5**0.5]}[ord_]
    np.testing.assert_allclose(NORM.reference(params, x=np.array([[3.0, -4.0], [1.0, 2.0]])), expected)


@pytest.mark.parametrize("op", [NANSUM, NANMEAN, NANPROD], ids=lambda op: op.name)
@pytest.mark.parametrize("axis", [0, 1])
def test_some_of_the_data_is_missing_but_no_whole_row(op: Operator, axis: int, torch_cpu: Any) -> None:
    params = op.complete({"shape": [50, 40], "axis": axis})
    x = torch_cpu.to_numpy(torch_cpu.tensor(op.inputs(params)["x"], 0))
    missing = np.isnan(x)
    assert 0.05 < missing.mean() < 0.15
    assert not missing.all(axis=axis).any()
    assert np.isfinite(op.reference(params, x=x)).all()


def test_what_is_missing_does_not_count() -> None:
    x = np.array([[2.0, np.nan, 4.0]])
    found = [float(op.reference(op.complete({"shape": [1, 3]}), x=x)[0]) for op in (NANSUM, NANMEAN, NANPROD)]
    assert found == [6.0, 3.0, 8.0]


@pytest.mark.parametrize("n", [2, 1000, 100_000])
def test_a_product_stays_around_one_however_long_it_is(n: int, numpy_cpu: Any) -> None:
    params = PROD.complete({"shape": [50, n]})
    found = PROD.reference(params, x=numpy_cpu.to_numpy(numpy_cpu.tensor(PROD.inputs(params)["x"], 0)))
    assert 1e-3 < found.min() < found.max() < 1e3
    assert found.std() > 0.1


ALONG_AN_AXIS = [op for op in OPERATORS if op.name not in ("all_finite", "multi_all_finite", "multi_sum_sq")]


@pytest.mark.parametrize("op", ALONG_AN_AXIS, ids=lambda op: op.name)
@pytest.mark.parametrize("axis", [-3, -1, 0, 2])
def test_an_axis_that_exists_is_allowed(op: Operator, axis: int) -> None:
    op.check_rules(op.complete({"shape": [2, 3, 4], "axis": axis}))


@pytest.mark.parametrize("op", ALONG_AN_AXIS, ids=lambda op: op.name)
@pytest.mark.parametrize("axis", [-4, 3])
def test_an_axis_that_does_not_exist_is_refused(op: Operator, axis: int) -> None:
    with pytest.raises(InvalidParameter, match=rf"parameter `axis` must .*\[2, 3, 4\] \(got {axis}\)"):
        op.check_rules(op.complete({"shape": [2, 3, 4], "axis": axis}))


REFUSED = [
    (NORM, {"shape": [2, 3], "ord": 3}, r"`ord` must be 1 or 2 \(got 3\)"),
    (VAR, {"shape": [2, 3], "correction": 3}, r"`correction` must be less than .*\[2, 3\] \(got 3\)"),
    (STD, {"shape": [3, 1], "correction": 0}, r"`shape` must have at least 2 elements along axis -1"),
]


@pytest.mark.parametrize(("op", "given", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(op: Operator, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        op.check_rules(op.complete(given))


@pytest.mark.parametrize(
    ("alias", "name"), [("sum", "reduce_sum"), ("sum_axis", "reduce_sum"), ("mean", "reduce_mean")]
)
def test_names_that_people_look_for(alias: str, name: str) -> None:
    assert operator(alias).name == name
