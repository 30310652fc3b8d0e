"""Truth values: comparisons, logical operators and tests of a number; and the same bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opmark.operators._binary import Data, binary
from opmark.operators._pointwise import pointwise
from opmark.operators.unary import with_nan
from opmark.schema import Operator
from opmark.schema.dtype import FLOATS, INTS

# Few different values, so that x and y are equal now and then.
COMPARED = Data((-1.0, 1.0), integers=(0, 16), step=1 / 8)
# Half of them zero, which is false.
TRUTH = Data((0.0, 1.0), integers=(0, 2), step=1 / 2)
WHOLE = ("int32", *(name for name in INTS if name != "int32"))
"""The first is the default."""


def _compares(name: str, short: str, sign: str, aliases: Sequence[str]) -> Operator:
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
    _compares("equal", "eq", "=", ("Equal", "broadcast_equal")),
    _compares("not_equal", "ne", "≠", ("NotEqual", "broadcast_not_equal")),
    _compares("greater", "gt", ">", ("Greater", "broadcast_greater")),
    _compares("greater_equal", "ge", "≥", ("GreaterEqual", "broadcast_greater_equal")),
    _compares("less", "lt", "<", ("lesser", "Lesser", "broadcast_lesser")),
    _compares("less_equal", "le", "≤", ("lesser_equal", "LesserEqual", "broadcast_lesser_equal")),
)


def _decides(word: str, summary: str) -> Operator:
    return binary(
        f"logical_{word}",
        f"{summary}; zero is false, all else true",
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


def _negates() -> Operator:
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
    _decides("and", "whether both x and y are true"),
    _decides("or", "whether x or y is true"),
    _decides("xor", "whether exactly one of x and y is true"),
    _negates(),
)


def _tests(name: str, summary: str, **more: Any) -> Operator:
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
    replace(_tests("isnan", "whether x is not a number"), inputs=with_nan),
    # Data is finite, so that the answer is the same for all of it; the work does not depend on it.
    _tests("isinf", "whether x is infinite", result="constant"),
    _tests("isfinite", "whether x is neither infinite nor NaN", result="constant"),
)


def _by_bits(name: str, summary: str, *aliases: str, numpy: str = "", y: Data | None = None) -> Operator:
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
"""The largest left shift is 14 · 8: inside every type."""

BITWISE = (
    _by_bits("bitwise_and", "bits that both x and y have"),
    _by_bits("bitwise_or", "bits that x or y has"),
    _by_bits("bitwise_xor", "bits that exactly one of x and y has"),
    pointwise("bitwise_not", "bits that x does not have", torch="torch.bitwise_not", numpy="numpy.bitwise_not",
              category="logical", dtypes=WHOLE, gradients=(), aliases=("invert",)),
    _by_bits("bitwise_left_shift", "x, y bits further up", "left_shift", numpy="left_shift", y=SHIFT),
    _by_bits("bitwise_right_shift", "x, y bits further down", "right_shift", numpy="right_shift", y=SHIFT),
)  # fmt: skip

OPERATORS = (*COMPARISON, *LOGICAL, *TESTS, *BITWISE)
