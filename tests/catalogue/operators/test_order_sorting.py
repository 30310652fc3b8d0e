"""sort, argsort, topk, kthvalue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from by_hand import costs_by_hand

from opmark.catalogue.operators.order import ARGSORT, KTHVALUE, SORT, TOPK
from opmark.errors import InvalidParameter, WrongResult
from opmark.plugin import Implementation, Operator
from opmark.schema import EFFORTS, Case, Cost, Settings, Task
from opmark.worker.verify.outputs import verify

X = np.random.default_rng(0).uniform(-1, 1, (4, 5, 6))

COSTS = [
    # 12 elements in, 3 x 2 values of 4 bytes and as many indices of 8 out.
    (TOPK, {"shape": [3, 4], "k": 2, "dtype": "float32"}, Cost(0, 48, 72), Cost(0, 72, 48)),
    (TOPK, {"shape": [3, 4], "k": 4, "dtype": "bfloat16"}, Cost(0, 24, 120), Cost(0, 120, 24)),
    # 12 values and 12 indices out; back, each gradient of 4 bytes is read with its index of 8.
    (SORT, {"shape": [3, 4]}, Cost(0, 48, 144), Cost(0, 144, 48)),
    (ARGSORT, {"shape": [3, 4]}, Cost(0, 48, 96), None),
    # One value and one index for each of 4 columns.
    (KTHVALUE, {"shape": [3, 4], "axis": 0, "k": 2}, Cost(0, 48, 48), Cost(0, 48, 48)),
]

test_cost_by_hand = costs_by_hand(COSTS)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_the_reference_of_topk_is_that_of_torch(k: int, largest: bool) -> None:
    params = TOPK.complete({"shape": list(X.shape), "k": k, "largest": largest})
    values, indices = torch.topk(torch.from_numpy(X), k, largest=largest)
    expected = TOPK.reference(params, x=X)
    np.testing.assert_array_equal(expected[0], values)
    observed = TOPK.observe(params, (values.numpy(), indices.numpy()), x=X)
    for seen, due in zip(observed, expected, strict=True):
        np.testing.assert_array_equal(seen, due)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_numpy_finds_the_same_as_torch(k: int, largest: bool) -> None:
    params = TOPK.complete({"shape": list(X.shape), "k": k, "largest": largest})
    (implementation,) = TOPK.implementations_for("numpy")
    values, indices = implementation.build(params, x=X)()
    due = torch.topk(torch.from_numpy(X), k, largest=largest)
    np.testing.assert_array_equal(values, due.values)
    np.testing.assert_array_equal(indices, due.indices)


def _verify_topk(live: Any, phase: Any, implementation: Implementation, dtype: str = "float32", **more: Any) -> Any:
    params = TOPK.complete({"shape": [16, 33], "k": 5, "dtype": dtype, **more})
    settings = Settings(1, "quick", EFFORTS["quick"])
    return verify(Task(Case.of("topk", params, phase), "torch-cpu", "", settings), TOPK, implementation, live)


def _topk_with(change: Any) -> Implementation:
    """Return torch.topk with a changed result."""

    def build(p: Any, x: Any) -> Any:
        return lambda: change(*torch.topk(x, p["k"], largest=p["largest"]))

    return Implementation("torch", build)


def test_equal_elements_may_be_found_in_any_order(torch_cpu: Any) -> None:
    """bfloat16 has so few values that a row of 1000 holds many twice."""

    def build(p: Any, x: Any) -> Any:
        def launch() -> Any:
            values, indices = torch.topk(x.flip(-1), p["k"])
            return values, x.shape[-1] - 1 - indices

        return launch

    other_order = Implementation("torch", build)
    params = {"shape": [4, 1000], "k": 100, "dtype": "bfloat16"}
    assert _verify_topk(torch_cpu, "forward", other_order, **params).max_abs_error == 0
    (usual,) = TOPK.implementations_for("torch")
    x = torch_cpu.tensor(TOPK.inputs(TOPK.complete(params))["x"], 0)
    found = [i.build(TOPK.complete(params), x=x)()[1] for i in (usual, other_order)]
    assert not torch.equal(*found)


WRONG_RESULTS = {
    "indices of other elements": lambda values, indices: (values, (indices + 1) % 33),
    "not sorted": lambda values, indices: (values.flip(-1), indices.flip(-1)),
    "an index beyond the row": lambda values, indices: (values, indices + 33),
    "indices transposed": lambda values, indices: (values, indices.T),
    "no indices": lambda values, indices: values,
    "one too many": lambda values, indices: (values, indices, indices),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("what", WRONG_RESULTS)
def test_a_wrong_topk_is_found_wrong(what: str, dtype: str, torch_cpu: Any) -> None:
    with pytest.raises(WrongResult):
        _verify_topk(torch_cpu, "forward", _topk_with(WRONG_RESULTS[what]), dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gradient_at_the_wrong_place_of_a_row_is_found_wrong(dtype: str, torch_cpu: Any) -> None:
    class Elsewhere(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, k: int) -> Any:
            values, indices = torch.topk(x, k)
            ctx.save_for_backward(indices)
            ctx.shape = x.shape
            ctx.mark_non_differentiable(indices)
            return values, indices

        @staticmethod
        def backward(ctx: Any, grad: Any, _: Any) -> Any:
            (indices,) = ctx.saved_tensors
            return grad.new_zeros(ctx.shape).scatter(-1, ctx.shape[-1] - 1 - indices, grad), None

    misplaced = Implementation("torch", lambda p, x: lambda: Elsewhere.apply(x, p["k"]))
    assert _verify_topk(torch_cpu, "forward", misplaced, dtype).checked == "full"
    with pytest.raises(WrongResult, match="gradient of `x`"):
        _verify_topk(torch_cpu, "backward", misplaced, dtype)


def test_k_is_at_most_the_length_of_a_row() -> None:
    TOPK.check_rules(TOPK.complete({"shape": [9, 4], "k": 4}))
    with pytest.raises(InvalidParameter, match=r"parameter `k` must .*\[9, 4\] \(got 5\)"):
        TOPK.check_rules(TOPK.complete({"shape": [9, 4], "k": 5}))


def test_what_is_written_grows_with_k_and_not_with_the_row() -> None:
    """[1024, 131072] with k = 2 writes 24,576 bytes; ByteMicroPerf counts the 536,870,912 that are read."""
    cost = TOPK.cost(TOPK.complete({"shape": [1024, 131072], "k": 2}))
    assert (cost.bytes_read, cost.bytes_written) == (536_870_912, 24_576)


def test_k_of_kthvalue_is_at_most_the_length_of_its_axis() -> None:
    KTHVALUE.check_rules(KTHVALUE.complete({"shape": [9, 4], "axis": 0, "k": 9}))
    with pytest.raises(InvalidParameter, match=r"parameter `k` must .*axis 1 of \[9, 4\] \(got 5\)"):
        KTHVALUE.check_rules(KTHVALUE.complete({"shape": [9, 4], "axis": 1, "k": 5}))


@pytest.mark.parametrize("op", [SORT, ARGSORT, KTHVALUE], ids=lambda op: op.name)
def test_an_axis_that_does_not_exist_is_refused(op: Operator) -> None:
    with pytest.raises(InvalidParameter, match="parameter `axis` must"):
        op.check_rules(
            op.complete({"k": 1, "shape": [2, 3], "axis": 2} if op is KTHVALUE else {"shape": [2], "axis": 1})
        )


def test_an_element_that_is_named_twice_is_not_sorted() -> None:
    """This also holds for equal elements, where the values at the indices are the same."""
    x = np.array([1.0, 1.0, 2.0])
    params = ARGSORT.complete({"shape": [3]})
    np.testing.assert_array_equal(ARGSORT.observe(params, np.array([1, 0, 2]), x=x), x)
    with pytest.raises(IndexError, match="twice"):
        ARGSORT.observe(params, np.array([1, 1, 2]), x=x)


@pytest.mark.parametrize("descending", [False, True])
def test_the_reference_of_sort_is_that_of_torch(descending: bool) -> None:
    params = SORT.complete({"shape": list(X.shape), "axis": 1, "descending": descending})
    due = torch.sort(torch.from_numpy(X), dim=1, descending=descending).values
    np.testing.assert_array_equal(SORT.reference(params, x=X)[0], due)


def test_whole_numbers_are_found_too() -> None:
    """The smallest integer has no negative in its type, so NumPy must not sort negated values."""
    x = np.array([[-(2**31), 5, 2**31 - 1]], np.int32)
    params = TOPK.complete({"shape": [1, 3], "k": 3, "dtype": "int32"})
    (implementation,) = TOPK.implementations_for("numpy")
    assert implementation.build(params, x=x)()[0].tolist() == [[2**31 - 1, 5, -(2**31)]]
