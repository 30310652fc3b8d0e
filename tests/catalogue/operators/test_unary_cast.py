"""cast: values, costs, and that it is always a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.unary import CAST
from opmark.errors import WrongResult
from opmark.plugin import Implementation
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Cost, Settings, Task
from opmark.schema.tensor import FLOATS, INTS, is_float
from opmark.worker.verify.outputs import verify


def test_only_bytes_are_moved_and_backwards_they_go_the_other_way() -> None:
    """Six elements: 4 bytes in, 2 out."""
    params = CAST.complete({"shape": [2, 3], "dtype": "float32", "to": "bfloat16"})
    assert CAST.phase_cost(params, "forward") == Cost(0, 24, 12)
    assert CAST.phase_cost(params, "backward") == Cost(0, 12, 24)
    assert CAST.cost({**params, "dtype": "int8", "to": "float64"}) == Cost(0, 6, 48)


@pytest.mark.parametrize("name", ["amp_cast", "amp_multicast", "astype"])
def test_other_names_of_a_cast(name: str) -> None:
    assert operator(name) is CAST


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


@pytest.mark.parametrize("to", ["bfloat16", "float16", "float64"])
def test_a_cast_that_does_not_convert_is_wrong(to: str, torch_cpu: Any) -> None:
    """The values are close enough, but the element type is wrong."""
    params = CAST.complete({"shape": [5, 7], "to": to})
    task = Task(Case.of("cast", params, "forward"), "torch-cpu", "lazy", Settings(1, "quick", EFFORTS["quick"]))
    lazy = Implementation("torch", lambda p, x: lambda: x.clone(), "lazy")
    with pytest.raises(WrongResult, match=to):
        verify(task, CAST, lazy, torch_cpu)
