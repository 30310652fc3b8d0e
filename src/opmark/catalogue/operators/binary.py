"""Element-wise operators on two or three tensors: arithmetic, sums, comparisons, logic and bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

from opmark.catalogue.operators import _builders
from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls, formula
from opmark.catalogue.operators._elementwise import POSITIVE, PRESETS, SHAPE, Data, binary, pointwise
from opmark.catalogue.operators.unary import with_nan
from opmark.plugin import Launch, Operator, Params, Tolerance
from opmark.plugin.param import dtype, real, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, INTS, is_float, sizeof

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
    implementations=(formula(_add_n), _builders.torch(_torch_add_n)),
    aliases=("ElementWiseSum",),
)

BINARY_OPERATORS = (*ARITHMETIC, *TERNARY, ADD_N)


# Operators that return truth values (comparisons, logic, tests of a number), and bitwise operators.

# Few different values, so that x and y are sometimes equal.
COMPARED = Data((-1.0, 1.0), integers=(0, 16), step=1 / 8)
# Half of the values are zero, which is false.
TRUTH = Data((0.0, 1.0), integers=(0, 2), step=1 / 2)
WHOLE = ("int32", *(name for name in INTS if name != "int32"))
"""Element types; the first is the default."""


def _comparison(name: str, short: str, sign: str, aliases: Sequence[str]) -> Operator:
    return binary(
        name,
        f"whether x {sign} y",
        torch=f"torch.{short}",
        numpy=f"numpy.{name}",
        category="comparison",
        x=COMPARED,
        y=COMPARED,
        dtypes=(*FLOATS, *INTS),
        flops=0,
        result_dtype="bool",
        gradients=(),
        aliases=(short, *aliases),
    )


COMPARISON = (
    _comparison("equal", "eq", "=", ("Equal", "broadcast_equal")),
    _comparison("not_equal", "ne", "≠", ("NotEqual", "broadcast_not_equal")),
    _comparison("greater", "gt", ">", ("Greater", "broadcast_greater")),
    _comparison("greater_equal", "ge", "≥", ("GreaterEqual", "broadcast_greater_equal")),
    _comparison("less", "lt", "<", ("lesser", "Lesser", "broadcast_lesser")),
    _comparison("less_equal", "le", "≤", ("lesser_equal", "LesserEqual", "broadcast_lesser_equal")),
)


def _logical(word: str, summary: str) -> Operator:
    return binary(
        f"logical_{word}",
        f"{summary}; zero is false, other values are true",
        torch=f"torch.logical_{word}",
        numpy=f"numpy.logical_{word}",
        category="logical",
        x=TRUTH,
        y=TRUTH,
        dtypes=(*FLOATS, *INTS, "bool"),
        flops=0,
        result_dtype="bool",
        gradients=(),
        aliases=(f"Logical{word.title()}", f"broadcast_logical_{word}"),
    )


def _negation() -> Operator:
    row = pointwise(
        "logical_not",
        "whether x is zero",
        torch="torch.logical_not",
        numpy="numpy.logical_not",
        category="logical",
        dtypes=(*FLOATS, *INTS, "bool"),
        flops=0,
        result_dtype="bool",
        gradients=(),
        aliases=("LogicalNot",),
    )
    return replace(row, inputs=lambda p: {"x": TRUTH.spec(tuple(p["shape"]), p["dtype"])})


LOGICAL = (
    _logical("and", "whether both x and y are true"),
    _logical("or", "whether x or y is true"),
    _logical("xor", "whether exactly one of x and y is true"),
    _negation(),
)


def _test(name: str, summary: str, **more: Any) -> Operator:
    return pointwise(
        name,
        summary,
        torch=f"torch.{name}",
        numpy=f"numpy.{name}",
        category="logical",
        flops=0,
        result_dtype="bool",
        gradients=(),
        **more,
    )


TESTS = (
    replace(_test("isnan", "whether x is not a number"), inputs=with_nan),
    # All data is finite, so the result is constant; the work does not depend on it.
    _test("isinf", "whether x is infinite", result="constant"),
    _test("isfinite", "whether x is neither infinite nor NaN", result="constant"),
)


def _bitwise(name: str, summary: str, *aliases: str, numpy: str = "", y: Data | None = None) -> Operator:
    return binary(
        name,
        summary,
        torch=f"torch.{name}",
        numpy=f"numpy.{numpy or name}",
        category="logical",
        x=Data(integers=(0, 15)),
        y=y or Data(integers=(0, 60)),
        dtypes=WHOLE,
        gradients=(),
        aliases=aliases,
    )


SHIFT = Data(integers=(0, 4))
"""The largest left shift gives 14 · 8, which fits every type."""

BITWISE = (
    _bitwise("bitwise_and", "bits that both x and y have"),
    _bitwise("bitwise_or", "bits that x or y has"),
    _bitwise("bitwise_xor", "bits that exactly one of x and y has"),
    pointwise("bitwise_not", "bits that x does not have", torch="torch.bitwise_not", numpy="numpy.bitwise_not",
              category="logical", dtypes=WHOLE, gradients=(), aliases=("invert",)),
    _bitwise("bitwise_left_shift", "x, y bits further up", "left_shift", numpy="left_shift", y=SHIFT),
    _bitwise("bitwise_right_shift", "x, y bits further down", "right_shift", numpy="right_shift", y=SHIFT),
)  # fmt: skip

LOGIC_OPERATORS = (*COMPARISON, *LOGICAL, *TESTS, *BITWISE)


OPERATORS = (
    *BINARY_OPERATORS,
    *LOGIC_OPERATORS,
)
