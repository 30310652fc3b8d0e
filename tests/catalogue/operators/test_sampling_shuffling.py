"""Random order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.sampling import RANDPERM, SHUFFLE
from opmark.errors import InvalidParameter
from opmark.plugin.registry import operator
from opmark.schema import Cost

N = 1000


def _passes(output: Any) -> bool:
    params = RANDPERM.complete({"elements": N})
    assert RANDPERM.observe
    try:
        found = RANDPERM.observe(params, output)
    except ValueError:
        return False
    return all(np.array_equal(one, other) for one, other in zip(found, RANDPERM.reference(params), strict=True))


def test_a_random_order_passes() -> None:
    for seed in range(50):
        assert _passes(np.random.default_rng(seed).permutation(N))


@pytest.mark.parametrize(
    "order",
    [np.arange(N), np.arange(N)[::-1], np.roll(np.arange(N), 500), np.zeros(N, np.int64), np.arange(N) * 7 % N // 2],
    ids=["unchanged", "reversed", "turned", "all the same", "some twice"],
)
def test_another_order_does_not(order: Any) -> None:
    assert not _passes(order)


def _rows_pass(output: Any, x: Any) -> bool:
    params = SHUFFLE.complete({"shape": list(x.shape)})
    assert SHUFFLE.observe
    found, expected = SHUFFLE.observe(params, output, x=x), SHUFFLE.reference(params, x=x)
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_rows_stay_together() -> None:
    draw = np.random.default_rng(0)
    x = draw.uniform(-1, 1, (500, 8))
    assert _rows_pass(draw.permutation(x), x)
    assert not _rows_pass(x, x)
    assert not _rows_pass(draw.permuted(x, axis=0), x), "each column in an order of its own"
    assert not _rows_pass(draw.permutation(x)[:, ::-1], x)


def test_cost_by_hand() -> None:
    assert RANDPERM.cost(RANDPERM.complete({"elements": 100})) == Cost(0, 0, 800)
    assert SHUFFLE.cost(SHUFFLE.complete({"shape": [100, 3]})) == Cost(0, 1200, 1200)


def test_too_few_to_tell_orders_apart_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="parameter `elements` must be at least 64"):
        RANDPERM.check_rules(RANDPERM.complete({"elements": 3}))
    with pytest.raises(InvalidParameter, match="parameter `shape` must have at least 64 rows"):
        SHUFFLE.check_rules(SHUFFLE.complete({"shape": [3, 100]}))


def test_a_permutation_is_known_by_its_other_name() -> None:
    assert operator("permutation") is RANDPERM
