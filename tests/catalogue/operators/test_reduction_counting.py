"""Truth values, counts, and sums over several tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.reduction import ALL, ALL_FINITE, ANY, COUNT_NONZERO, MULTI_ALL_FINITE, MULTI_SUM_SQ
from opmark.plugin import Operator
from opmark.schema import Cost

COSTS = [
    # 12 elements in, 3 truth values of a byte out.
    (ANY, {"shape": [3, 4]}, Cost(0, 48, 3)),
    (ALL, {"shape": [3, 4], "axis": 0, "dtype": "bool"}, Cost(0, 12, 4)),
    (COUNT_NONZERO, {"shape": [3, 4]}, Cost(0, 48, 24)),
    (ALL_FINITE, {"shape": [3, 4]}, Cost(0, 48, 1)),
    (MULTI_ALL_FINITE, {"shape": [3, 4], "tensors": 5, "dtype": "float16"}, Cost(0, 120, 1)),
    # 5 sums, of at least 4 bytes each.
    (MULTI_SUM_SQ, {"shape": [3, 4], "tensors": 5, "dtype": "float16"}, Cost(120, 120, 20)),
]


@pytest.mark.parametrize(("op", "given", "forward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost) -> None:
    assert op.phase_cost(op.complete(given), "forward") == forward


@pytest.mark.parametrize("op", [ANY, ALL], ids=lambda op: op.name)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "bool", "int8"])
def test_about_half_of_the_answers_are_yes(op: Operator, axis: int, dtype: str, torch_cpu: Any) -> None:
    """A constant result could be guessed, and a search would end at its first element."""
    params = op.complete({"shape": [300, 400], "axis": axis, "dtype": dtype})
    x = torch_cpu.to_numpy(torch_cpu.tensor(op.inputs(params)["x"], 0))
    assert set(np.unique(x).tolist()) == {0, 1}
    assert 0.3 < op.reference(params, x=x).mean() < 0.7


@pytest.mark.parametrize("op", [ALL_FINITE, MULTI_ALL_FINITE], ids=lambda op: op.name)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_bad_element_is_noticed(op: Operator, bad: float, torch_cpu: Any) -> None:
    params = op.complete({"shape": [5, 7]})
    tensors = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
    (implementation,) = op.implementations_for("torch")
    launch = implementation.build(params, **tensors)
    assert launch().item() is True
    next(reversed(tensors.values()))[-1, -1] = bad
    assert launch().item() is False
    assert not op.reference(params, **{name: torch_cpu.to_numpy(tensor) for name, tensor in tensors.items()})


def test_squares_are_added_up_tensor_by_tensor() -> None:
    params = MULTI_SUM_SQ.complete({"shape": [2], "tensors": 2, "dtype": "float64"})
    found = MULTI_SUM_SQ.reference(params, x0=np.array([1.0, 2.0]), x1=np.array([3.0, 4.0]))
    assert found.tolist() == [5.0, 25.0]


def test_half_a_million_squares_do_not_overflow_in_float16() -> None:
    params = MULTI_SUM_SQ.complete({"shape": [1 << 19], "tensors": 1, "dtype": "float16"})
    for implementation in MULTI_SUM_SQ.implementations_for("torch"):
        found = implementation.build(params, x0=torch.ones(1 << 19, dtype=torch.float16))()
        assert found.item() == pytest.approx(1 << 19)
