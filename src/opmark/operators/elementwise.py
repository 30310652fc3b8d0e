"""One output element from one element of each input: add, exp, gelu, cast."""

from __future__ import annotations

from math import pi, prod, sqrt
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import calls
from opmark.schema import Cost, Implementation, Launch, Operator, Params, TensorSpec
from opmark.schema.dtype import FLOATS, INTS, is_float, sizeof
from opmark.schema.param import choice, dtype, shape

PRESETS = {
    "small": {"shape": [256, 256]},
    "typical": {"shape": [2048, 2048]},
    "large": {"shape": [8192, 4096]},
}
SHAPE = shape("shape", "shape of the tensors, such as 1024x1024")


def _inputs(*names: str) -> Any:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        return {name: TensorSpec(tuple(p["shape"]), p["dtype"], *_domain(p["dtype"])) for name in names}

    return inputs


def _domain(dtype: str) -> tuple[float, float]:
    """Sums of two stay inside the smallest integer type, and conversions between types lose only a fraction."""
    return (-1.0, 1.0) if is_float(dtype) else (0, 60)


def _cost(reads: int, flops: int) -> Any:
    """A cost of `reads` tensors in, one out, and so many operations an element."""

    def cost(p: Params) -> Cost:
        n, size = prod(p["shape"]), sizeof(p["dtype"])
        return Cost(flops * n, reads * n * size, n * size)

    return cost


ADD = Operator(
    name="add",
    summary="x + y",
    category="element-wise",
    params=(SHAPE, dtype(*FLOATS, *INTS)),
    inputs=_inputs("x", "y"),
    cost=_cost(reads=2, flops=1),
    # Backwards nothing is computed: both gradients are the incoming one, so there is no cost to state.
    reference=lambda p, x, y: x + y,
    presets=PRESETS,
    gradients=("x", "y"),
    implementations=(calls("numpy.add", "x", "y"), calls("torch.add", "x", "y")),
)

EXP = Operator(
    name="exp",
    summary="e to the power of x",
    category="element-wise",
    params=(SHAPE, dtype(*FLOATS)),
    inputs=_inputs("x"),
    cost=_cost(reads=1, flops=1),
    backward_cost=_cost(reads=2, flops=1),
    reference=lambda p, x: np.exp(x),
    presets=PRESETS,
    gradients=("x",),
    implementations=(calls("numpy.exp", "x"), calls("torch.exp", "x")),
)


def _gelu_reference(p: Params, x: Any) -> Any:
    from scipy.special import erf

    if p["approximate"] == "tanh":
        return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / sqrt(2)))


def _numpy_gelu(p: Params, x: Any) -> Launch:
    from scipy.special import erf

    half, one, root = (x.dtype.type(c) for c in (0.5, 1, sqrt(0.5)))
    if p["approximate"] == "tanh":
        outer, inner = x.dtype.type(sqrt(2 / pi)), x.dtype.type(0.044715)
        return lambda: half * x * (one + np.tanh(outer * (x + inner * x * x * x)))
    return lambda: (half * x * (one + erf(x * root))).astype(x.dtype, copy=False)


GELU = Operator(
    name="gelu",
    summary="Gaussian error linear unit: x times the normal distribution function of x",
    category="activation",
    params=(SHAPE, dtype(*FLOATS), choice("approximate", "exact, or by tanh", ("none", "tanh"), "none")),
    inputs=_inputs("x"),
    cost=_cost(reads=1, flops=5),
    backward_cost=_cost(reads=2, flops=9),
    reference=_gelu_reference,
    presets=PRESETS,
    gradients=("x",),
    implementations=(
        Implementation("numpy", _numpy_gelu),
        calls("torch.nn.functional.gelu", "x", approximate="approximate"),
    ),
)


def _cast_inputs(p: Params) -> dict[str, TensorSpec]:
    low, high = (-1.0, 1.0) if is_float(p["dtype"]) and is_float(p["to"]) else (0, 60)
    return {"x": TensorSpec(tuple(p["shape"]), p["dtype"], low, high)}


def _cast_cost(p: Params) -> Cost:
    n = prod(p["shape"])
    return Cost(0, n * sizeof(p["dtype"]), n * sizeof(p["to"]))


def _cast_backward(p: Params) -> Cost:
    n = prod(p["shape"])
    return Cost(0, n * sizeof(p["to"]), n * sizeof(p["dtype"]))


def _numpy_cast(p: Params, x: Any) -> Launch:
    to = np.dtype(p["to"])
    return lambda: x.astype(to)


def _torch_cast(p: Params, x: Any) -> Launch:
    import torch

    to = getattr(torch, p["to"])
    return lambda: x.to(to, copy=True)


CAST = Operator(
    name="cast",
    summary="the same values in another element type; always a copy",
    category="element-wise",
    params=(
        SHAPE,
        dtype(*FLOATS, *INTS, doc="element type to convert from"),
        dtype(*FLOATS, *INTS, name="to", default="bfloat16", doc="element type to convert to"),
    ),
    inputs=_cast_inputs,
    cost=_cast_cost,
    backward_cost=_cast_backward,
    # Towards an integer the fraction is cut off; towards a shorter float the tolerance allows for the rounding.
    reference=lambda p, x: x if is_float(p["to"]) else np.trunc(x),
    result_dtype=lambda p: str(p["to"]),
    presets=PRESETS,
    gradients=("x",),
    implementations=(Implementation("numpy", _numpy_cast), Implementation("torch", _torch_cast)),
)

OPERATORS = (ADD, EXP, GELU, CAST)
