"""embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.operators.indexing import EMBEDDING
from opmark.schema import Cost

COSTS = [
    # 5 rows of 3 elements are copied, and 5 indices of 8 bytes read. Back: all 7 rows are written.
    ({"rows": 7, "dim": 3, "indices": 5, "dtype": "float32"}, Cost(0, 100, 60), Cost(15, 100, 84)),
    ({"rows": 7, "dim": 3, "indices": 5, "dtype": "bfloat16"}, Cost(0, 70, 30), Cost(15, 70, 42)),
]


@pytest.mark.parametrize(("given", "forward", "backward"), COSTS)
def test_cost_by_hand(given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = EMBEDDING.complete(given)
    assert EMBEDDING.phase_cost(params, "forward") == forward
    assert EMBEDDING.phase_cost(params, "backward") == backward


def test_the_size_of_the_table_costs_nothing_to_look_up() -> None:
    small, large = (EMBEDDING.complete({"rows": rows, "dim": 3, "indices": 5}) for rows in (7, 7000))
    assert EMBEDDING.cost(small) == EMBEDDING.cost(large)
    assert EMBEDDING.backward_cost(large).bytes_written == 1000 * EMBEDDING.backward_cost(small).bytes_written


def test_the_reference_is_that_of_torch() -> None:
    generator = np.random.default_rng(0)
    weight, indices = generator.uniform(-1, 1, (7, 3)), generator.integers(0, 7, 20)
    expected = torch.nn.functional.embedding(torch.from_numpy(indices), torch.from_numpy(weight))
    np.testing.assert_array_equal(EMBEDDING.reference({}, weight=weight, indices=indices), expected)


@pytest.mark.parametrize("name", ["numpy_cpu", "torch_cpu"])
def test_every_row_is_asked_for_and_none_beyond(name: str, request: pytest.FixtureRequest) -> None:
    live = request.getfixturevalue(name)
    spec = EMBEDDING.inputs(EMBEDDING.complete({"rows": 5, "dim": 3, "indices": 1000}))["indices"]
    assert set(live.to_numpy(live.tensor(spec, 0)).tolist()) == {0, 1, 2, 3, 4}


def test_only_the_table_has_a_gradient() -> None:
    assert EMBEDDING.gradients == ("weight",)
