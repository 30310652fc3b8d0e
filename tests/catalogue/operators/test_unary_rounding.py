"""Rounding to integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.unary import ROUNDING_OPERATORS
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

X = [-2.5, -1.7, -0.5, 0.5, 1.2, 1.5, 2.5]
ROUNDED: dict[str, list[float]] = {
    "ceil": [-2, -1, 0, 1, 2, 2, 3],
    "floor": [-3, -2, -1, 0, 1, 1, 2],
    "trunc": [-2, -1, 0, 0, 1, 1, 2],
    "round": [-2, -2, 0, 0, 1, 2, 2],
    "frac": [-0.5, -0.7, -0.5, 0.5, 0.2, 0.5, 0.5],
}


@pytest.mark.parametrize("op", ROUNDING_OPERATORS, ids=lambda op: op.name)
def test_halves_and_negative_numbers(op: Operator) -> None:
    np.testing.assert_allclose(op.reference({}, x=np.array(X)), ROUNDED[op.name], atol=1e-15)


@pytest.mark.parametrize(("name", "ours"), [("rint", "round"), ("fix", "trunc"), ("ceil", "ceil"), ("floor", "floor")])
def test_names_of_other_systems_are_known(name: str, ours: str) -> None:
    assert operator(name).name == ours


@pytest.mark.parametrize("op", ROUNDING_OPERATORS, ids=lambda op: op.name)
def test_an_operation_an_element_and_no_gradient(op: Operator) -> None:
    params = op.complete({"shape": [2, 3], "dtype": "float32"})
    assert op.cost(params) == Cost(6, 24, 24)
    assert op.why_no_phase(params, "backward")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_most_data_is_not_whole_already(dtype: str, numpy_cpu: Any) -> None:
    op = operator("round")
    spec = op.inputs(op.complete({"shape": [1000], "dtype": dtype}))["x"]
    x = numpy_cpu.tensor(spec, 0)
    assert (x != np.rint(x)).mean() > 0.9
