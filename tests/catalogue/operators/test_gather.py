"""Picking elements and rows by index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.gather import (
    EMBEDDING,
    GATHER,
    GATHER_ROWS,
    HASH_TABLE,
    INDEX_SELECT,
    OPERATORS,
    PICK,
    TAKE,
    TAKE_ALONG_AXIS,
    TAKE_FLAT,
)
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

COSTS = [
    # 5 rows of 3 elements are copied, and 5 indices of 8 bytes read. Back: all 7 rows are written.
    (EMBEDDING, {"rows": 7, "dim": 3, "indices": 5, "dtype": "float32"}, Cost(0, 100, 60), Cost(15, 100, 84)),
    (EMBEDDING, {"rows": 7, "dim": 3, "indices": 5, "dtype": "bfloat16"}, Cost(0, 70, 30), Cost(15, 70, 42)),
    # 2 x 3 rows of 4.
    (HASH_TABLE, {"entries": 7, "dim": 4, "batch": 2, "lookups": 3}, Cost(0, 144, 96), Cost(24, 144, 112)),
    # An index for each row, but an index for each element: 8 bytes each.
    (INDEX_SELECT, {"shape": [7, 4], "indices": 3}, Cost(0, 48 + 24, 48), Cost(12, 72, 112)),
    (GATHER, {"shape": [7, 4], "length": 3}, Cost(0, 48 + 96, 48), Cost(12, 144, 112)),
    (GATHER_ROWS, {"shape": [7, 4], "indices": 3}, Cost(0, 48 + 24, 48), Cost(12, 72, 112)),
    (TAKE_ALONG_AXIS, {"shape": [7, 4], "axis": 1, "length": 3}, Cost(0, 84 + 168, 84), Cost(21, 252, 112)),
    (TAKE, {"shape": [7, 4], "index_shape": [3, 2]}, Cost(0, 96 + 48, 96), Cost(24, 144, 112)),
    (TAKE_FLAT, {"shape": [7, 4], "indices": 5}, Cost(0, 20 + 40, 20), Cost(5, 60, 112)),
    (PICK, {"shape": [7, 4]}, Cost(0, 28 + 56, 28), Cost(7, 84, 112)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


def test_the_size_of_the_table_costs_nothing_to_look_up() -> None:
    small, large = (EMBEDDING.complete({"rows": rows, "dim": 3, "indices": 5}) for rows in (7, 7000))
    assert EMBEDDING.cost(small) == EMBEDDING.cost(large)
    assert EMBEDDING.backward_cost(large).bytes_written == 1000 * EMBEDDING.backward_cost(small).bytes_written


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_indices_and_results_take_the_bytes_that_torch_gives_them(op: Operator, torch_cpu: Any) -> None:
    """Picked elements are read and written; beside them only the indices are read, in full."""
    params = op.complete({**op.preset("small"), "dtype": "float16"})
    tensors = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
    (implementation,) = op.implementations_for("torch")
    result = implementation.build(params, **tensors)()
    indices = sum(tensor.nbytes for tensor in tensors.values() if tensor.dtype == torch.int64)
    assert op.cost(params) == Cost(0, result.nbytes + indices, result.nbytes)
    assert op.backward_cost(params).bytes_read == result.nbytes + indices


def test_the_reference_is_that_of_torch() -> None:
    generator = np.random.default_rng(0)
    weight, indices = generator.uniform(-1, 1, (7, 3)), generator.integers(0, 7, 20)
    expected = torch.nn.functional.embedding(torch.from_numpy(indices), torch.from_numpy(weight))
    np.testing.assert_array_equal(EMBEDDING.reference({}, weight=weight, indices=indices), expected)


X = np.arange(12.0).reshape(3, 4)
RESULTS = [
    (INDEX_SELECT, {"axis": 1, "indices": 2}, [3, 0], [[3, 0], [7, 4], [11, 8]]),
    (TAKE, {"index_shape": [1, 2]}, [[2, 0]], [[[8, 9, 10, 11], [0, 1, 2, 3]]]),
    (TAKE_FLAT, {"indices": 2}, [11, 4], [11, 4]),
    (GATHER, {"length": 1}, [[2, 1, 0, 2]], [[8, 5, 2, 11]]),
    (GATHER_ROWS, {"indices": 2}, [2, 0], [[8, 9, 10, 11], [0, 1, 2, 3]]),
    (GATHER_ROWS, {"axis": -1, "indices": 2}, [3, 0], [[3, 0], [7, 4], [11, 8]]),
    (TAKE_ALONG_AXIS, {"axis": 1, "length": 1}, [[3], [0], [1]], [[3], [4], [9]]),
    (PICK, {}, [3, 0, 1], [3, 4, 9]),
    (PICK, {"axis": 0, "keepdims": True}, [2, 1, 0, 2], [[8, 5, 2, 11]]),
]


@pytest.mark.parametrize(("op", "given", "index", "expected"), RESULTS)
def test_results_by_hand(op: Operator, given: dict[str, Any], index: Any, expected: Any) -> None:
    params = op.complete({"shape": [3, 4], **given, "dtype": "float64"})
    assert op.reference(params, x=X, index=np.array(index)).tolist() == expected
    (implementation,) = op.implementations_for("torch")
    assert implementation.build(params, x=torch.from_numpy(X), index=torch.tensor(index))().tolist() == expected


def test_the_index_of_rows_is_expanded_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """One index per element would be other work: 8 bytes each, and rows would not be read as a whole."""
    called: list[torch.Tensor] = []
    gather = torch.Tensor.gather
    monkeypatch.setattr(torch.Tensor, "gather", lambda x, dim, index: called.append(index) or gather(x, dim, index))
    params = GATHER_ROWS.complete({"shape": [7, 4], "indices": 3})
    index = torch.tensor([2, 0, 6])
    GATHER_ROWS.implementations_for("torch")[0].build(params, x=torch.rand(7, 4), index=index)()
    (seen,) = called
    assert (seen.shape, seen.stride(), seen.data_ptr()) == ((3, 4), (1, 0), index.data_ptr())


@pytest.mark.parametrize("name", ["numpy_cpu", "torch_cpu"])
def test_every_row_is_asked_for_and_none_beyond(name: str, request: pytest.FixtureRequest) -> None:
    live = request.getfixturevalue(name)
    spec = EMBEDDING.inputs(EMBEDDING.complete({"rows": 5, "dim": 3, "indices": 1000}))["indices"]
    assert set(live.to_numpy(live.tensor(spec, 0)).tolist()) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_only_the_table_has_a_gradient(op: Operator) -> None:
    inputs = op.inputs(op.complete(op.preset("small")))
    assert [inputs[name].dtype for name in op.gradients] == ["float32"]
    assert len(inputs) == 2


REFUSED = [
    (INDEX_SELECT, {"shape": [5, 4], "indices": 1, "axis": 2}, r"`axis` must name an axis of shape \[5, 4\] \(got 2\)"),
    (GATHER, {"shape": [5, 4], "length": 1, "axis": -3}, r"`axis` must name an axis of shape \[5, 4\] \(got -3\)"),
    (PICK, {"shape": [5], "axis": 0}, r"`shape` must have at least 2 axes \(got \[5\]\)"),
]


@pytest.mark.parametrize(("op", "given", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(op: Operator, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        op.check_rules(op.complete(given))


ALIASES = [
    ("choose_element_0index", PICK), ("batch_take", PICK), ("Embedding", EMBEDDING),
    ("take_along_dim", TAKE_ALONG_AXIS),
]  # fmt: skip


@pytest.mark.parametrize(("alias", "op"), ALIASES)
def test_names_that_people_look_for(alias: str, op: Operator) -> None:
    assert operator(alias) is op
