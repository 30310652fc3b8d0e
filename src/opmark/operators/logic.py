"""Operators that return truth values (comparisons, logic, tests of a number), and bitwise operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opmark.operators._binary import Data, binary
from opmark.operators._pointwise import pointwise
from opmark.operators.unary import with_nan
from opmark.schema import Operator
from opmark.schema.dtype import FLOATS, INTS

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

OPERATORS = (*COMPARISON, *LOGICAL, *TESTS, *BITWISE)
