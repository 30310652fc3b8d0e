"""Operators that write over x: they do so, return it, and keep it finite in repeated calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.inplace import ASSIGNMENTS, OPERATORS
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import backend, operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in OPERATORS}
# Smallest normal number of float16; smaller ones lose digits and are slow.
NORMAL = 2.0**-14

every_operator = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
every_backend = pytest.mark.parametrize("backend_name", ["numpy-cpu", "torch-cpu"])

ELSEWHERE = {
    "IAdd": "iadd", "ISub": "isub", "IMul": "imul", "IDiv": "idiv", "IMod": "imod", "add_": "iadd", "sub_": "isub",
    "mul_": "imul", "div_": "idiv", "remainder_": "imod", "pow_": "ipow", "clip_": "clamp_", "relu_": "relu_",
}  # fmt: skip


def launched(op: Operator, live: Any, framework: str, dtype: str) -> tuple[Any, Any]:
    """Return x and the launch over it."""
    params = op.complete({"shape": [5, 7], "dtype": dtype})
    inputs = {name: live.tensor(spec, seed) for seed, (name, spec) in enumerate(op.inputs(params).items())}
    (implementation,) = op.implementations_for(framework)
    return inputs["x"], implementation.build(params, **inputs)


@every_operator
@every_backend
def test_the_result_is_x_itself(op: Operator, backend_name: str, request: pytest.FixtureRequest) -> None:
    live = request.getfixturevalue(backend_name.replace("-", "_"))
    x, launch = launched(op, live, backend(backend_name).framework, "float32")
    before = np.copy(live.to_numpy(x))
    assert np.shares_memory(np.asarray(launch()), np.asarray(x))
    assert (live.to_numpy(x) != before).any()


@every_operator
@every_backend
def test_again_and_again_stays_finite_and_normal(op: Operator, backend_name: str, request: Any) -> None:
    live, info = request.getfixturevalue(backend_name.replace("-", "_")), backend(backend_name)
    for dtype in {"float32", "float16", "bfloat16"} & info.dtypes:
        x, launch = launched(op, live, info.framework, dtype)
        for _ in range(3000):
            launch()
        values = np.abs(live.to_numpy(x))
        assert np.isfinite(values).all()
        assert (values[values > 0] > NORMAL).all()


@every_operator
def test_only_x_is_changed_and_there_is_no_gradient(op: Operator) -> None:
    assert op.mutates == ("x",)
    assert op.why_no_phase(op.complete(op.preset("small")), "backward")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_of_other_systems_are_known(name: str) -> None:
    assert operator(name) is BY_NAME[ELSEWHERE[name]]


@pytest.mark.parametrize("op", ASSIGNMENTS, ids=lambda op: op.name)
def test_x_and_y_come_in_and_x_goes_out(op: Operator) -> None:
    params = op.complete({"shape": [2, 3], "dtype": "float32"})
    assert op.cost(params) == Cost(6, 48, 24)
    assert op.cost({**params, "y": "row"}) == Cost(6, 36, 24)


def test_a_range_whose_ends_are_exchanged_is_refused() -> None:
    clamp = BY_NAME["clamp_"]
    with pytest.raises(InvalidParameter, match="`low`"):
        clamp.check_rules(clamp.complete({"shape": [3], "low": 1.0, "high": -1.0}))
