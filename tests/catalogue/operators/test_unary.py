"""Element-wise functions of one tensor: known values, costs by hand, names."""

from __future__ import annotations

from math import e, pi
from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.unary import UNARY_OPERATORS
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in UNARY_OPERATORS}
SIX = {"shape": [2, 3]}

# Known values.
KNOWN = [
    ("abs", -2.5, 2.5), ("negative", 2.5, -2.5), ("sign", -2.5, -1), ("sign", 0, 0), ("identity", 2.5, 2.5),
    ("reciprocal", 4, 0.25), ("square", -3, 9), ("sqrt", 9, 3), ("rsqrt", 16, 0.25), ("cbrt", -27, -3),
    ("rcbrt", -8, -0.5), ("exp", 1, e), ("exp2", 3, 8), ("expm1", 1e-20, 1e-20), ("log", e, 1), ("log2", 8, 3),
    ("log10", 1000, 3), ("log1p", 1e-20, 1e-20), ("logit", 0.5, 0), ("sin", pi / 2, 1), ("cos", pi, -1),
    ("tan", pi / 4, 1), ("arcsin", 1, pi / 2), ("arccos", -1, pi), ("arctan", 1, pi / 4),
    ("sinh", 1, 1.1752011936438014), ("cosh", 1, 1.5430806348152437), ("tanh", 1, 0.7615941559557649),
    ("arcsinh", 1.1752011936438014, 1), ("arccosh", 1.5430806348152437, 1), ("arctanh", 0.7615941559557649, 1),
    ("degrees", pi, 180), ("radians", 180, pi), ("sinc", 0, 1), ("sinc", 0.5, 2 / pi), ("erf", 1, 0.8427007929497149),
    ("erfc", 1, 0.15729920705028513), ("erfinv", 0.8427007929497149, 1), ("gamma", 5, 24), ("gamma", 0.5, pi**0.5),
    ("gammaln", 5, np.log(24)), ("digamma", 1, -0.5772156649015329), ("clip", 3, 0.5), ("clip", -3, -0.5),
    ("clip", 0.25, 0.25), ("nan_to_num", np.nan, 0),
]  # fmt: skip

# Six elements, counted by hand.
COSTS = [
    # Back: the gradient times the output, both read.
    ("exp", "float64", Cost(6, 48, 48), Cost(6, 96, 48)),
    ("exp", "bfloat16", Cost(6, 12, 12), Cost(6, 24, 12)),
    # Back: the gradient alone.
    ("negative", "float32", Cost(6, 24, 24), Cost(6, 24, 24)),
    ("degrees", "float32", Cost(6, 24, 24), Cost(6, 24, 24)),
    # Root and quotient. Back: -1/2 · gradient · y³.
    ("rsqrt", "float32", Cost(12, 24, 24), Cost(24, 48, 24)),
    # Back: gradient, x and the output.
    ("gamma", "float32", Cost(6, 24, 24), Cost(18, 72, 24)),
    # Compared and moved only.
    ("clip", "float16", Cost(0, 12, 12), Cost(0, 24, 12)),
    ("identity", "int8", Cost(0, 6, 6), None),
    ("sign", "float32", Cost(0, 24, 24), None),
]

# Names of MXNet's opperf, ByteMicroPerf, DL Operator Benchmarks and PyTorch.
ELSEWHERE = [
    "abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "BlockGrad", "cbrt", "cos", "cosh",
    "degrees", "erf", "erfinv", "exp", "expm1", "gamma", "gammaln", "identity", "log", "log10", "log1p", "log2",
    "make_loss", "negative", "radians", "rcbrt", "reciprocal", "rsqrt", "sign", "sin", "sinh", "sqrt", "square",
    "stop_gradient", "tan", "tanh", "clip", "Exp", "Log", "Sqrt", "Square", "Negative", "Tanh", "acos", "asinh",
    "neg", "lgamma", "rad2deg", "clamp", "clone",
]  # fmt: skip


def test_every_operator_has_a_known_value() -> None:
    assert {name for name, _, _ in KNOWN} == set(BY_NAME)


@pytest.mark.parametrize(("name", "x", "expected"), KNOWN)
def test_the_reference_gives_known_values(name: str, x: float, expected: float) -> None:
    op = BY_NAME[name]
    found = op.reference(op.complete(SIX), x=np.full((2, 3), float(x)))
    np.testing.assert_allclose(found, np.full((2, 3), expected), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("name", "dtype", "forward", "backward"), COSTS)
def test_cost_by_hand(name: str, dtype: str, forward: Cost, backward: Cost | None) -> None:
    op = BY_NAME[name]
    params = op.complete({**SIX, "dtype": dtype})
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_of_other_systems_are_known(name: str) -> None:
    assert operator(name) in UNARY_OPERATORS


@pytest.mark.parametrize("name", ["cbrt", "rcbrt"])
def test_cube_roots_of_negative_numbers_exist(name: str) -> None:
    op = BY_NAME[name]
    x = np.array([-27.0, -8.0, 1.0])
    (implementation,) = op.implementations_for("torch")
    found = implementation.build({}, x=torch.from_numpy(x))()
    np.testing.assert_allclose(found, op.reference({}, x=x), rtol=1e-12)


@pytest.mark.parametrize(
    "op", [op for op in UNARY_OPERATORS if "int8" in op.param("dtype").choices], ids=lambda op: op.name
)
def test_whole_results_stay_in_the_smallest_type(op: Operator) -> None:
    spec = op.inputs(op.complete({**SIX, "dtype": "int8"}))["x"]
    every = np.arange(spec.low, spec.high)
    assert (np.abs(op.reference({}, x=every)) <= 127).all()


@pytest.mark.parametrize("name", ["abs", "negative", "sign", "square"])
def test_whole_numbers_are_negative_too(name: str) -> None:
    """Otherwise a function that returns its input would pass."""
    spec = BY_NAME[name].inputs(BY_NAME[name].complete({**SIX, "dtype": "int8"}))["x"]
    assert spec.low < 0 < spec.high


def test_a_range_whose_ends_are_exchanged_is_refused() -> None:
    clip = BY_NAME["clip"]
    with pytest.raises(InvalidParameter, match=r"`low`.*high=-1"):
        clip.check_rules(clip.complete({**SIX, "low": 1.0, "high": -1.0}))
    clip.check_rules(clip.complete({**SIX, "low": 1.0, "high": 1.0}))


def test_a_copy_is_in_new_memory(numpy_cpu: Any, torch_cpu: Any) -> None:
    op = BY_NAME["identity"]
    params = op.complete(SIX)
    for live, framework in ((numpy_cpu, "numpy"), (torch_cpu, "torch")):
        x = live.tensor(op.inputs(params)["x"], 0)
        (implementation,) = op.implementations_for(framework)
        assert not np.shares_memory(np.asarray(implementation.build(params, x=x)()), np.asarray(x))
