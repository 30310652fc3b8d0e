"""Writing elements and rows by index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from by_hand import costs_by_hand

from opmark.catalogue.operators.scatter import (
    INDEX_ADD,
    INDEX_ADD_INPLACE,
    INDEX_FILL,
    INDEX_PUT,
    SCATTER,
    SCATTER_ADD,
    SCATTER_INPLACE,
    SCATTER_ROWS_INPLACE,
)
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

COSTS = [
    # A copy of 5 x 4 elements; 2 x 4 are put, each by an index of 8 bytes. Back: both gradients are written.
    (SCATTER, {"shape": [5, 4], "length": 2}, Cost(0, 80 + 32 + 64, 80), Cost(0, 80 + 64, 112)),
    # Only the 8 elements that are put are touched.
    (SCATTER_INPLACE, {"shape": [5, 4], "length": 2}, Cost(0, 32 + 64, 32), None),
    (SCATTER_ADD, {"shape": [5, 4], "length": 2}, Cost(8, 80 + 32 + 64, 80), Cost(0, 32 + 64, 32)),
    # 2 rows of 4, an index for each row.
    (INDEX_ADD, {"shape": [5, 4], "indices": 2}, Cost(8, 80 + 32 + 16, 80), Cost(0, 32 + 16, 32)),
    # What is added to is read, too.
    (INDEX_ADD_INPLACE, {"shape": [5, 4], "indices": 2}, Cost(8, 32 + 32 + 16, 32), None),
    (SCATTER_ROWS_INPLACE, {"shape": [5, 4], "indices": 2}, Cost(0, 32 + 16, 32), None),
    (INDEX_PUT, {"shape": [5, 4], "indices": 2}, Cost(0, 80 + 32 + 16, 80), Cost(0, 80 + 16, 112)),
    (INDEX_FILL, {"shape": [5, 4], "indices": 2}, Cost(0, 80 + 16, 80), Cost(0, 80 + 16, 80)),
    (INDEX_ADD, {"shape": [5, 4], "axis": 1, "indices": 3, "dtype": "float16"}, Cost(15, 94, 40), Cost(0, 54, 30)),
]

test_cost_by_hand = costs_by_hand(COSTS)


def _arrays(op: Operator, params: dict[str, Any], live: Any) -> dict[str, Any]:
    return {name: live.to_numpy(live.tensor(spec, i)) for i, (name, spec) in enumerate(op.inputs(params).items())}


@pytest.mark.parametrize("op", [SCATTER, SCATTER_INPLACE], ids=lambda op: op.name)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_no_place_is_put_twice(op: Operator, axis: int, torch_cpu: Any) -> None:
    """Of two elements at one place either may win, so the result would be undefined."""
    index = _arrays(op, op.complete({"shape": [6, 7, 5], "axis": axis, "length": 4}), torch_cpu)["index"]
    ordered = np.sort(index, axis=axis)
    assert (np.diff(ordered, axis=axis) > 0).all()
    assert len(np.unique(index)) == (6, 7, 5)[axis]


@pytest.mark.parametrize("op", [INDEX_PUT, INDEX_FILL, SCATTER_ROWS_INPLACE], ids=lambda op: op.name)
def test_no_row_is_put_twice(op: Operator, torch_cpu: Any) -> None:
    index = _arrays(op, op.complete({"shape": [50, 3], "indices": 40}), torch_cpu)["index"]
    assert len(set(index.tolist())) == 40


def test_what_is_added_twice_counts_twice() -> None:
    x, src = np.zeros((3, 1)), np.array([[1.0], [2.0], [4.0]])
    index = np.array([0, 0, 2])
    rows = INDEX_ADD.complete({"shape": [3, 1], "indices": 3})
    assert INDEX_ADD.reference(rows, x=x, index=index, src=src)[:, 0].tolist() == [3.0, 0.0, 4.0]
    each = SCATTER_ADD.complete({"shape": [3, 1], "length": 3})
    assert SCATTER_ADD.reference(each, x=x, index=index[:, None], src=src)[:, 0].tolist() == [3.0, 0.0, 4.0]
    assert (x == 0).all()


@pytest.mark.parametrize("op", [SCATTER_INPLACE, SCATTER_ROWS_INPLACE, INDEX_ADD_INPLACE], ids=lambda op: op.name)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_in_place_the_tensor_itself_is_changed(op: Operator, framework: str, request: pytest.FixtureRequest) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    params = op.complete({"shape": [7, 5], **({"length": 3} if op is SCATTER_INPLACE else {"indices": 3})})
    tensors = {name: live.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
    due = op.reference(params, **{name: np.array(live.to_numpy(tensor)) for name, tensor in tensors.items()})
    (implementation,) = op.implementations_for(framework)
    assert implementation.build(params, **tensors)() is tensors["x"]
    np.testing.assert_allclose(live.to_numpy(tensors["x"]), due, rtol=1e-6, atol=1e-6)


def test_the_index_of_rows_is_expanded_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[torch.Tensor] = []
    scatter = torch.Tensor.scatter_
    monkeypatch.setattr(torch.Tensor, "scatter_", lambda x, d, i, src: called.append(i) or scatter(x, d, i, src))
    params = SCATTER_ROWS_INPLACE.complete({"shape": [5, 4], "indices": 2})
    x, index, src = torch.zeros(5, 4), torch.tensor([3, 1]), torch.rand(2, 4)
    SCATTER_ROWS_INPLACE.implementations_for("torch")[0].build(params, x=x, index=index, src=src)()
    (seen,) = called
    assert (seen.shape, seen.stride(), seen.data_ptr()) == ((2, 4), (1, 0), index.data_ptr())
    assert torch.equal(x[[3, 1]], src)
    assert not x[[0, 2, 4]].any()


def test_adding_again_and_again_stays_finite_in_16_bits() -> None:
    params = INDEX_ADD_INPLACE.complete({"shape": [4, 2], "indices": 8, "dtype": "float16"})
    x, src = torch.zeros(4, 2, dtype=torch.float16), torch.ones(8, 2, dtype=torch.float16)
    (implementation,) = INDEX_ADD_INPLACE.implementations_for("torch")
    launch = implementation.build(params, x=x, index=torch.arange(8) % 4, src=src)
    for _ in range(3000):
        launch()
    assert x.isfinite().all()
    stopped = x.clone()
    assert torch.equal(launch(), stopped)


REFUSED = [
    (SCATTER, {"shape": [5, 4], "length": 6}, r"`length` must be at most .*axis 0 of \[5, 4\] \(got 6\)"),
    (SCATTER_INPLACE, {"shape": [5, 4], "axis": 1, "length": 5}, "`length` must be at most .*axis 1"),
    (INDEX_PUT, {"shape": [5, 4], "indices": 6}, r"`indices` must be at most the number of rows .*\(got 6\)"),
    (SCATTER_ROWS_INPLACE, {"shape": [5, 4], "axis": 1, "indices": 5}, "`indices` must be at most .*axis 1"),
    (INDEX_FILL, {"shape": [5, 4], "indices": 5}, r"`indices` must be less than .*\(got 5\)"),
    (INDEX_ADD, {"shape": [5, 4], "indices": 5, "axis": 2}, "`axis` must name an axis"),
    (SCATTER_ADD, {"shape": [5, 4], "length": 5, "axis": -3}, "`axis` must name an axis"),
]


@pytest.mark.parametrize(("op", "given", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(op: Operator, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        op.check_rules(op.complete(given))


@pytest.mark.parametrize(
    ("alias", "op"), [("indexadd", INDEX_ADD), ("fill_element_0index", SCATTER), ("index_copy", INDEX_PUT)]
)
def test_names_that_people_look_for(alias: str, op: Operator) -> None:
    assert operator(alias) is op
