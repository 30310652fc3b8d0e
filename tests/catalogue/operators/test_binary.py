"""Operators on two tensors, with and without broadcasting, on three tensors, and sums of many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.binary import ADD_N, ARITHMETIC, BINARY_OPERATORS
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost
from opmark.schema.tensor import FLOATS, INTS

BY_NAME = {op.name: op for op in BINARY_OPERATORS}

# Six elements, counted by hand; with a row, y has 3 of them, with a column 2.
COSTS = [
    ("add", {"dtype": "float32"}, Cost(6, 48, 24), None),
    ("add", {"dtype": "int8"}, Cost(6, 12, 6), None),
    ("add", {"dtype": "float32", "y": "row"}, Cost(6, 36, 24), None),
    ("add", {"dtype": "float32", "y": "column"}, Cost(6, 32, 24), None),
    ("add", {"dtype": "float32", "y": "scalar"}, Cost(6, 28, 24), None),
    # Back: two products; gradient, x and y come in, two gradients go out.
    ("mul", {"dtype": "float32"}, Cost(6, 48, 24), Cost(12, 72, 48)),
    # Two products of 6, and 3 sums of 2 rows; 6 + 6 + 3 elements in, 6 + 3 out.
    ("mul", {"dtype": "float32", "y": "row"}, Cost(6, 36, 24), Cost(15, 60, 36)),
    # 2 sums of 3 elements are 4 additions.
    ("mul", {"dtype": "float32", "y": "column"}, Cost(6, 32, 24), Cost(16, 56, 32)),
    ("mul", {"dtype": "float32", "y": "scalar"}, Cost(6, 28, 24), Cost(17, 52, 28)),
    # Compared and moved only.
    ("maximum", {"dtype": "float16"}, Cost(0, 24, 12), Cost(0, 36, 24)),
    # Difference, product, sum. Back: both are multiples of the incoming gradient.
    ("lerp", {"dtype": "float32"}, Cost(18, 48, 24), Cost(12, 24, 48)),
    # Back: the gradient of x is the incoming one; those of y and z are computed.
    ("addcmul", {"dtype": "float32"}, Cost(18, 72, 24), Cost(18, 72, 48)),
    # Three tensors, two additions an element.
    ("add_n", {"dtype": "float32", "n": 3}, Cost(12, 72, 24), None),
    ("add_n", {"dtype": "int8", "n": 1}, Cost(0, 6, 6), None),
]  # fmt: skip

KNOWN = [
    ("add", 3, 2, 5), ("sub", 3, 2, 1), ("mul", 3, 2, 6), ("div", 3, 2, 1.5), ("floor_divide", -3, 2, -2),
    ("mod", -3, 2, 1), ("mod", 3, -2, -1), ("fmod", -3, 2, -1), ("fmod", 3, -2, 1), ("power", 2, -2, 0.25),
    ("hypot", 3, 4, 5), ("atan2", 1, -1, 3 * np.pi / 4), ("logaddexp", 0, 0, np.log(2)), ("maximum", -3, 2, 2),
    ("minimum", -3, 2, -3),
]  # fmt: skip

ELSEWHERE = [
    "broadcast_add", "broadcast_plus", "elemwise_add", "Add", "broadcast_sub", "broadcast_minus", "elemwise_sub",
    "Subtract", "broadcast_mul", "elemwise_mul", "Multiply", "broadcast_div", "elemwise_div", "Divide",
    "broadcast_mod", "Modulo", "remainder", "broadcast_power", "Power", "broadcast_hypot", "broadcast_maximum",
    "broadcast_minimum", "add_n", "ElementWiseSum", "pow", "arctan2",
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(name: str, given: dict[str, Any], forward: Cost, backward: Cost | None) -> None:
    op = BY_NAME[name]
    params = op.complete({"shape": [2, 3], **given})
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


def test_every_operator_on_two_tensors_has_a_known_value() -> None:
    assert {name for name, *_ in KNOWN} == {op.name for op in ARITHMETIC}


@pytest.mark.parametrize(("name", "x", "y", "expected"), KNOWN)
def test_the_reference_gives_known_values(name: str, x: float, y: float, expected: float) -> None:
    found = BY_NAME[name].reference({}, x=np.array([float(x)]), y=np.array([float(y)]))
    np.testing.assert_allclose(found, [expected], rtol=1e-12)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_of_other_systems_are_known(name: str) -> None:
    assert operator(name) in BINARY_OPERATORS


@pytest.mark.parametrize(
    ("way", "shape"), [("same", (4, 9, 5)), ("row", (5,)), ("column", (4, 9, 1)), ("scalar", (1,))]
)
def test_y_is_as_small_as_it_is_said_to_be(way: str, shape: tuple[int, ...]) -> None:
    op = BY_NAME["mul"]
    params = op.complete({"shape": [4, 9, 5], "y": way})
    inputs = {name: np.ones(spec.shape) for name, spec in op.inputs(params).items()}
    assert inputs["y"].shape == shape
    assert op.reference(params, **inputs).shape == (4, 9, 5)


def test_an_unknown_way_to_broadcast_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"`y`.*same, row, column, scalar"):
        BY_NAME["add"].param("y").check("rows")


@pytest.mark.parametrize("op", [op for op in ARITHMETIC if "int8" in op.param("dtype").choices], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_whole_results_stay_in_the_smallest_types(op: Operator, dtype: str) -> None:
    """Nothing overflows, and no difference is negative where a type has no sign."""
    specs = op.inputs(op.complete({"shape": [1], "dtype": dtype}))
    x, y = (np.arange(specs[name].low, specs[name].high, dtype=np.int64) for name in ("x", "y"))
    results = op.reference({}, x=x[:, None], y=y[None, :])
    limits = np.iinfo(dtype)
    assert limits.min <= results.min()
    assert results.max() <= limits.max


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_the_larger_one_is_never_in_doubt(name: str, dtype: str, torch_cpu: Any) -> None:
    """Where x and y are nearly equal, there is no derivative to compare a gradient with."""
    op = BY_NAME[name]
    specs = op.inputs(op.complete({"shape": [10000], "dtype": dtype}))
    x, y = (torch_cpu.to_numpy(torch_cpu.tensor(specs[name], seed)) for seed, name in enumerate("xy"))
    assert np.abs(x - y).min() >= 1 / 128
    assert 0.4 < (x > y).mean() < 0.6


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["mod", "fmod"])
def test_a_quotient_is_never_whole(name: str, dtype: str, torch_cpu: Any) -> None:
    """A remainder jumps there and has no derivative."""
    op = BY_NAME[name]
    specs = op.inputs(op.complete({"shape": [10000], "dtype": dtype}))
    x, y = (torch_cpu.to_numpy(torch_cpu.tensor(specs[name], seed)) for seed, name in enumerate("xy"))
    assert np.abs(x / y - np.rint(x / y)).min() > 0.01


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_a_sum_of_many_whole_numbers_stays_in_its_type(dtype: str, n: int) -> None:
    specs = ADD_N.inputs(ADD_N.complete({"shape": [3], "dtype": dtype, "n": n}))
    assert len(specs) == n
    assert sum(spec.high - 1 for spec in specs.values()) <= np.iinfo(dtype).max


def test_the_sum_of_one_tensor_is_a_copy(torch_cpu: Any) -> None:
    params = ADD_N.complete({"shape": [3], "n": 1})
    x = torch_cpu.tensor(ADD_N.inputs(params)["x0"], 0)
    (implementation,) = ADD_N.implementations_for("torch")
    assert implementation.build(params, x0=x)().data_ptr() != x.data_ptr()
