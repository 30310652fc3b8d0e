"""Views are views and copies are copies, in every framework and with every option."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators import concatenation, layout, triangle, views
from opmark.catalogue.operators import views as slicing
from opmark.catalogue.operators._layout import ANY, NOTHING, data
from opmark.plugin import Operator

FAMILIES = ("joining", "shaping", "triangles", "views")
ODD = {
    name: cases
    for family in FAMILIES
    for name, cases in run_path(str(Path(__file__).parent / "odd" / f"{family}.py"))["ODD"].items()
}
# Operators that do not read the tensor.
KNOWN = ("shape_array", "size_array")
OPERATORS = [
    op for module in (concatenation, layout, layout, slicing, triangle, views) for op in module.OPERATORS
    if op.name not in KNOWN and op.category in ("shaping", "joining")
]  # fmt: skip
every_operator = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
every_framework = pytest.mark.parametrize("framework", ["numpy", "torch"])


def _cases(op: Operator) -> Iterator[dict[str, Any]]:
    yield from (op.complete(given) for given in (op.preset("small"), *ODD[op.name]))


def _inputs(op: Operator, params: dict[str, Any], live: Any) -> dict[str, Any]:
    return {name: live.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}


def _arrays(outputs: Any) -> list[Any]:
    """Return NumPy arrays over the same memory."""
    return [np.asarray(output) for output in (outputs if isinstance(outputs, tuple) else (outputs,))]


@every_operator
@every_framework
def test_a_view_shares_memory_and_a_copy_does_not(op: Operator, framework: str, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    (implementation,) = op.implementations_for(framework)
    for params in _cases(op):
        inputs = _inputs(op, params, live)
        for output in _arrays(implementation.build(params, **inputs)()):
            shared = any(np.shares_memory(output, np.asarray(tensor)) for tensor in inputs.values())
            assert shared == op.view, params


@every_operator
def test_the_gradient_of_a_gradient_view_is_the_incoming_one(op: Operator, torch_cpu: Any) -> None:
    if not op.gradients:
        pytest.skip("has none")
    (implementation,) = op.implementations_for("torch")
    for params in _cases(op):
        inputs = _inputs(op, params, torch_cpu)
        launch, seeds = torch_cpu.backward(implementation.build(params, **inputs), list(inputs.values()), 0)
        for gradient in _arrays(tuple(launch())):
            shared = any(np.shares_memory(gradient, seed.numpy()) for seed in seeds if seed is not None)
            assert shared == (op.gradient_view or op.backward_cost(params) == NOTHING), params


@every_operator
def test_a_view_says_so_in_its_summary(op: Operator) -> None:
    assert ("(a view)" in op.summary or "(views)" in op.summary) == op.view


@pytest.mark.parametrize("name", ANY)
def test_data_has_every_kind_of_value(name: str, numpy_cpu: Any, torch_cpu: Any) -> None:
    live = torch_cpu if name == "bfloat16" else numpy_cpu
    values = live.to_numpy(live.tensor(data((1000,), name), 0))
    assert len(np.unique(values)) >= (2 if name == "bool" else 100)
    assert (values < 0).any() == (name not in ("bool", "uint8"))
