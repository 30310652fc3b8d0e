"""add, exp, gelu, cast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.errors import WrongResult
from opmark.operators.elementwise import ADD, CAST, EXP, GELU
from opmark.runner.check import verify
from opmark.schema import EFFORTS, Case, Cost, Implementation, Operator, Settings, Task
from opmark.schema.dtype import FLOATS, INTS, is_float

X = np.linspace(-3, 3, 35).reshape(5, 7)
SIX = {"shape": [2, 3]}

# (operator, parameters, forward, backward); counted by hand for six elements.
COSTS = [
    # 6 sums of 4 bytes: two tensors in, one out. Back: the gradient comes in and goes out twice.
    (ADD, {**SIX, "dtype": "float32"}, Cost(6, 48, 24), None),
    (ADD, {**SIX, "dtype": "int8"}, Cost(6, 12, 6), None),
    # Back: the gradient times the output, both read.
    (EXP, {**SIX, "dtype": "float64"}, Cost(6, 48, 48), Cost(6, 96, 48)),
    (EXP, {**SIX, "dtype": "bfloat16"}, Cost(6, 12, 12), Cost(6, 24, 12)),
    # Scale, erf, add, half, product: 5. Back: the gradient and x.
    (GELU, {**SIX, "dtype": "float32"}, Cost(30, 24, 24), Cost(54, 48, 24)),
    (GELU, {**SIX, "dtype": "float16", "approximate": "tanh"}, Cost(30, 12, 12), Cost(54, 24, 12)),
    # Only moved: 4 bytes in, 2 out, and the other way round.
    (CAST, {**SIX, "dtype": "float32", "to": "bfloat16"}, Cost(0, 24, 12), Cost(0, 12, 24)),
    (CAST, {**SIX, "dtype": "int8", "to": "float64"}, Cost(0, 6, 48), None),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost | None) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    if backward:
        assert op.phase_cost(params, "backward") == backward


def test_the_reference_of_add_and_exp_is_that_of_torch() -> None:
    x = torch.from_numpy(X)
    np.testing.assert_allclose(ADD.reference({}, x=X, y=X[::-1]), torch.add(x, x.flip(0)), rtol=1e-14)
    np.testing.assert_allclose(EXP.reference({}, x=X), torch.exp(x), rtol=1e-14)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_reference_of_gelu_is_that_of_torch(approximate: str) -> None:
    expected = torch.nn.functional.gelu(torch.from_numpy(X), approximate=approximate)
    np.testing.assert_allclose(GELU.reference({"approximate": approximate}, x=X), expected, rtol=1e-12, atol=1e-14)


def test_the_two_kinds_of_gelu_differ() -> None:
    exact, tanh = (GELU.reference({"approximate": kind}, x=X) for kind in ("none", "tanh"))
    assert 1e-5 < np.abs(exact - tanh).max() < 1e-3


@pytest.mark.parametrize("to", [*FLOATS, *INTS])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_the_reference_of_cast_is_that_of_torch(dtype: str, to: str, torch_cpu: Any) -> None:
    params = CAST.complete({"shape": [41, 3], "dtype": dtype, "to": to})
    x = torch_cpu.tensor(CAST.inputs(params)["x"], 0)
    found = CAST.reference(params, x=torch_cpu.to_numpy(x))
    expected = torch_cpu.to_numpy(x.to(getattr(torch, to)))
    widened = is_float(dtype) and is_float(to) and torch.finfo(getattr(torch, to)).eps
    np.testing.assert_allclose(found, expected, rtol=float(widened or 0), atol=0)


def test_a_cast_to_an_integer_cuts_the_fraction_off() -> None:
    params = CAST.complete({"shape": [3], "dtype": "float32", "to": "int32"})
    assert CAST.reference(params, x=np.array([0.9, 59.5, -2.7])).tolist() == [0, 59, -2]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("to", [*FLOATS, *INTS])
def test_every_value_of_a_cast_exists_in_both_types(dtype: str, to: str) -> None:
    """Nothing overflows, and nothing is negative where a type has no sign: frameworks differ in what they do then."""
    spec = CAST.inputs(CAST.complete({"shape": [3], "dtype": dtype, "to": to}))["x"]
    for name in (dtype, to):
        if not is_float(name):
            assert np.iinfo(name).min <= spec.low
            assert spec.high <= np.iinfo(name).max


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_cast_to_the_same_type_is_a_copy(framework: str, request: pytest.FixtureRequest) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    params = CAST.complete({"shape": [3, 5], "dtype": "float32", "to": "float32"})
    x = live.tensor(CAST.inputs(params)["x"], 0)
    (implementation,) = CAST.implementations_for(framework)
    result = implementation.build(params, x=x)()
    assert result is not x
    assert not np.shares_memory(np.asarray(result), np.asarray(x))


@pytest.mark.parametrize("dtype", INTS)
def test_a_sum_of_two_integers_stays_in_its_type(dtype: str) -> None:
    specs = ADD.inputs(ADD.complete({"shape": [3], "dtype": dtype}))
    assert sum(spec.high - 1 for spec in specs.values()) <= np.iinfo(dtype).max
    assert sum(spec.low for spec in specs.values()) >= np.iinfo(dtype).min


@pytest.mark.parametrize("to", ["bfloat16", "float16", "float64"])
def test_a_cast_that_does_not_convert_is_wrong(to: str, torch_cpu: Any) -> None:
    """The values are close enough; it is the element type that was asked for."""
    params = CAST.complete({"shape": [5, 7], "to": to})
    task = Task(Case.of("cast", params, "forward"), "torch-cpu", "lazy", Settings(1, "quick", EFFORTS["quick"]))
    lazy = Implementation("torch", lambda p, x: lambda: x.clone(), "lazy")
    with pytest.raises(WrongResult, match=to):
        verify(task, CAST, lazy, torch_cpu)
