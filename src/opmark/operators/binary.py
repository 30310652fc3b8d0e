"""Element-wise operators on two or three tensors, and sums of many tensors."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

from opmark.operators import _build
from opmark.operators import _numpy as np
from opmark.operators._binary import Data, binary
from opmark.operators._build import calls, formula
from opmark.operators._pointwise import POSITIVE, PRESETS, SHAPE, pointwise
from opmark.schema import Cost, Launch, Operator, Params, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, INTS, is_float, sizeof
from opmark.schema.param import dtype, real, size

NUMBERS = (*FLOATS, *INTS)
UPPER = Data(integers=(60, 120))
"""Integers whose sums do not overflow and whose differences are not negative."""
# Quotients lie between -2.97 and -2.12, never at an integer, where the remainder jumps.
DIVIDEND, DIVISOR = Data((-2.875, -2.1875)), Data((0.96875, 1.03125), integers=(1, 12))
# Two grids without common points: where x and y are nearly equal, a maximum has no gradient to compare.
EVEN, ODD = Data((-1.0, 1.0), step=1 / 64), Data((-127 / 128, 1 + 1 / 128), step=1 / 64)
DOMAIN = Data(POSITIVE)

ARITHMETIC = (
    # The gradients of a sum are the incoming one, so there is nothing to compute; a difference only negates one of
    # them.
    binary("add", "x + y", torch="torch.add", numpy="numpy.add", dtypes=NUMBERS, gradient_view=True,
           aliases=("Add", "broadcast_add", "broadcast_plus", "elemwise_add")),
    binary("sub", "x - y", torch="torch.sub", numpy="numpy.subtract", dtypes=NUMBERS, x=UPPER, gradient_view=True,
           aliases=("subtract", "Subtract", "broadcast_sub", "broadcast_minus", "elemwise_sub")),
    binary("mul", "x · y", torch="torch.mul", numpy="numpy.multiply", dtypes=NUMBERS, x=Data(integers=(0, 12)),
           y=Data(integers=(0, 11)), aliases=("multiply", "Multiply", "broadcast_mul", "elemwise_mul")),
    binary("div", "x / y", torch="torch.div", numpy="numpy.divide", y=Data((0.5, 2.0)), backward_flops=4,
           aliases=("divide", "true_divide", "Divide", "broadcast_div", "elemwise_div")),
    binary("floor_divide", "x / y, rounded down", torch="torch.floor_divide", numpy="numpy.floor_divide",
           dtypes=NUMBERS, x=Data((-10.0, 10.0)), y=Data(POSITIVE, integers=(1, 12)), gradients=()),
    binary("mod", "remainder of x / y, with the sign of y", torch="torch.remainder",
           numpy="numpy.remainder", dtypes=NUMBERS, x=DIVIDEND, y=DIVISOR, gradients=("y",),
           aliases=("remainder", "Modulo", "broadcast_mod")),
    binary("fmod", "remainder of x / y, with the sign of x", torch="torch.fmod",
           numpy="numpy.fmod", dtypes=NUMBERS, x=DIVIDEND, y=DIVISOR, gradients=("y",)),
    binary("power", "x to the power of y", torch="torch.pow", numpy="numpy.power", x=Data((0.5, 2.0)),
           y=Data((-2.0, 2.0)), backward_flops=7, aliases=("pow", "Power", "broadcast_power")),
    binary("hypot", "square root of x² + y²", torch="torch.hypot", numpy="numpy.hypot", x=DOMAIN, y=DOMAIN, flops=4,
           backward_flops=7, aliases=("broadcast_hypot",)),
    binary("atan2", "angle of the point (y, x)", torch="torch.atan2", numpy="numpy.arctan2", x=DOMAIN, y=DOMAIN,
           backward_flops=7, aliases=("arctan2",)),
    binary("logaddexp", "log(exp(x) + exp(y))", torch="torch.logaddexp", numpy="numpy.logaddexp", flops=4,
           backward_flops=6),
    binary("maximum", "the larger of x and y", torch="torch.maximum", numpy="numpy.maximum", dtypes=NUMBERS, x=EVEN,
           y=ODD, flops=0, backward_flops=0, aliases=("broadcast_maximum",)),
    binary("minimum", "the smaller of x and y", torch="torch.minimum", numpy="numpy.minimum", dtypes=NUMBERS, x=EVEN,
           y=ODD, flops=0, backward_flops=0, aliases=("broadcast_minimum",)),
)  # fmt: skip

VALUE = real("value", "factor of the second term", 0.5)

TERNARY = (
    pointwise("lerp", "x + weight · (y - x)", torch=calls("torch.lerp", "x", "y", weight="weight"),
              reference=lambda p, x, y: x + p["weight"] * (y - x), inputs=("x", "y"), flops=3, backward_flops=2,
              backward_reads=1, params=(real("weight", "how far to go from x to y", 0.3),)),
    pointwise("addcmul", "x + value · y · z", torch=calls("torch.addcmul", "x", "y", "z", value="value"),
              reference=lambda p, x, y, z: x + p["value"] * y * z, inputs=("x", "y", "z"), params=(VALUE,), flops=3,
              gradients=("y", "z"), backward_flops=3, backward_reads=3),
    pointwise("addcdiv", "x + value · y / z", torch=calls("torch.addcdiv", "x", "y", "z", value="value"),
              reference=lambda p, x, y, z: x + p["value"] * y / z, inputs=("x", "y", "z"), params=(VALUE,), flops=3,
              domains=((-1.0, 1.0), (-1.0, 1.0), POSITIVE), gradients=("y", "z"), backward_flops=5, backward_reads=3),
)  # fmt: skip


def _terms(p: Params) -> dict[str, TensorSpec]:
    """Return the terms, with integers so small that their sum fits into 8 bits."""
    domain = (-1.0, 1.0) if is_float(p["dtype"]) else (0, max(2, 120 // p["n"]))
    return {f"x{i}": TensorSpec(tuple(p["shape"]), p["dtype"], *domain) for i in range(p["n"])}


def _add_n_cost(p: Params) -> Cost:
    n, nbytes = prod(p["shape"]), sizeof(p["dtype"])
    return Cost((p["n"] - 1) * n, p["n"] * n * nbytes, n * nbytes)


def _add_n(p: Params, **terms: Any) -> Any:
    return np.sum([*terms.values()], axis=0)


def _torch_add_n(p: Params, **terms: Any) -> Launch:
    import torch

    first, *others = terms.values()
    return lambda: reduce(torch.add, others, first) if others else first.clone()


ADD_N = Operator(
    name="add_n",
    summary="sum of n tensors",
    category="element-wise",
    params=(SHAPE, size("n", "number of tensors", 4), dtype(*NUMBERS)),
    inputs=_terms,
    cost=_add_n_cost,
    gradients=("x*",),
    gradient_view=True,
    reference=_add_n,
    presets=PRESETS,
    tolerance=Tolerance(lambda p: p["n"]),
    implementations=(formula(_add_n), _build.torch(_torch_add_n)),
    aliases=("ElementWiseSum",),
)

OPERATORS = (*ARITHMETIC, *TERNARY, ADD_N)
