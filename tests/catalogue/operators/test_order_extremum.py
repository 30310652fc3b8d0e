"""The largest, smallest or middle element, and where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from by_hand import costs_by_hand

from opmark.catalogue.operators.order import AMAX, AMIN, ARGMAX, ARGMIN, MEDIAN, REDUCE_MAX, REDUCE_MIN
from opmark.errors import WrongResult
from opmark.plugin import Implementation, Operator
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Cost, Settings, Task
from opmark.worker.verify.outputs import verify

X = np.random.default_rng(0).uniform(-1, 1, (4, 5, 6))

COSTS = [
    # 12 elements in; 3 values of 4 bytes and 3 indices of 8 out. Back: 3 gradients with their indices, 12 elements.
    (REDUCE_MAX, {"shape": [3, 4]}, Cost(0, 48, 36), Cost(0, 36, 48)),
    (REDUCE_MIN, {"shape": [3, 4], "dtype": "bfloat16"}, Cost(0, 24, 30), Cost(0, 30, 24)),
    (MEDIAN, {"shape": [3, 4], "axis": 0}, Cost(0, 48, 48), Cost(0, 48, 48)),
    # Back, x is compared with 3 results again.
    (AMAX, {"shape": [3, 4]}, Cost(0, 48, 12), Cost(3, 72, 48)),
    (ARGMAX, {"shape": [3, 4]}, Cost(0, 48, 24), None),
]

test_cost_by_hand = costs_by_hand(COSTS)


@pytest.mark.parametrize("op", [REDUCE_MAX, REDUCE_MIN, MEDIAN], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_an_index_takes_the_bytes_that_torch_gives_it(op: Operator, dtype: str, torch_cpu: Any) -> None:
    """ByteMicroPerf counts 4 bytes; it is int64."""
    params = op.complete({"shape": [6, 5], "dtype": dtype})
    (implementation,) = op.implementations_for("torch")
    outputs = implementation.build(params, x=torch_cpu.tensor(op.inputs(params)["x"], 0))()
    assert op.cost(params).bytes_written == sum(output.nbytes for output in outputs)


TORCH = {"reduce_max": torch.max, "reduce_min": torch.min, "median": torch.median}


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [-3, 1, 2])
@pytest.mark.parametrize("name", TORCH)
def test_value_and_index_are_those_of_torch(name: str, axis: int, keepdims: bool) -> None:
    op = operator(name)
    params = op.complete({"shape": list(X.shape), "axis": axis, "keepdims": keepdims, "dtype": "float64"})
    due = TORCH[name](torch.from_numpy(X), dim=axis, keepdim=keepdims)
    (implementation,) = op.implementations_for("numpy")
    values, indices = implementation.build(params, x=X)()
    np.testing.assert_array_equal(op.reference(params, x=X)[0], due[0])
    np.testing.assert_array_equal(values, due[0])
    np.testing.assert_array_equal(indices, due[1])


def test_the_middle_of_an_even_number_is_one_that_is_there() -> None:
    params = MEDIAN.complete({"shape": [4]})
    assert MEDIAN.reference(params, x=np.array([4.0, 1.0, 3.0, 2.0]))[0] == 2.0


def test_an_index_may_name_any_of_equal_elements_but_no_other() -> None:
    x = np.array([[1.0, 3.0, 3.0]])
    params = ARGMAX.complete({"shape": [1, 3]})
    for index in (1, 2):
        assert ARGMAX.observe(params, np.array([index]), x=x) == ARGMAX.reference(params, x=x)
    assert ARGMAX.observe(params, np.array([0]), x=x) != ARGMAX.reference(params, x=x)


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_beyond_the_row_points_at_nothing(index: int) -> None:
    with pytest.raises(IndexError, match="length 3"):
        ARGMAX.observe(ARGMAX.complete({"shape": [1, 3]}), np.array([index]), x=np.zeros((1, 3)))


def test_the_second_largest_is_found_wrong_even_where_it_is_close(torch_cpu: Any) -> None:
    """In bfloat16 the difference is within the rounding error of a sum, but nothing is rounded here."""
    second = Implementation("torch", lambda p, x: lambda: torch.topk(x, 2).indices[..., 1])
    params = ARGMAX.complete({"shape": [4, 100], "dtype": "bfloat16"})
    task = Task(Case.of("argmax", params, "forward"), "torch-cpu", "", Settings(1, "quick", EFFORTS["quick"]))
    with pytest.raises(WrongResult):
        verify(task, ARGMAX, second, torch_cpu)


ALIASES = [
    ("max", AMAX), ("max_axis", AMAX), ("min", AMIN), ("min_axis", AMIN), ("argmax_channel", ARGMAX),
    ("ArgMin", ARGMIN),
]  # fmt: skip


@pytest.mark.parametrize(("alias", "op"), ALIASES)
def test_names_that_people_look_for(alias: str, op: Operator) -> None:
    assert operator(alias) is op
