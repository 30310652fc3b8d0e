"""Element-wise operators on two or three tensors: arithmetic, comparisons, bits, casts."""

from __future__ import annotations

from functools import reduce
from math import pi
from typing import Any

from opmark.implementations.onnx._graph import GraphBuilder, graph, node
from opmark.schema import Implementation, Params
from opmark.schema.dtype import is_float

_NODES = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min", "power": "Pow",
    "equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual", "less": "Less",
    "less_equal": "LessOrEqual", "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor",
}  # fmt: skip


def _floor_divide(g: GraphBuilder, p: Params, x: str, y: str) -> Any:
    """Subtract the remainder first, as ONNX truncates the quotient of integers."""
    if is_float(p["dtype"]):
        return g.Floor(g.Div(x, y))
    return g.Div(g.Sub(x, g.Mod(x, y)), y)


def _mod(g: GraphBuilder, p: Params, x: str, y: str) -> Any:
    """Compute it from the quotient, as ONNX's remainder of floats has the sign of x."""
    if not is_float(p["dtype"]):
        return g.Mod(x, y)
    return g.Sub(x, g.Mul(y, g.Floor(g.Div(x, y))))


def _hypot(g: GraphBuilder, p: Params, x: str, y: str) -> Any:
    return g.Sqrt(g.Add(g.Mul(x, x), g.Mul(y, y)))


def _atan2(g: GraphBuilder, p: Params, x: str, y: str) -> Any:
    """Compute atan2 by quadrant, as exporters write it. The first argument is the height."""
    angle = g.Atan(g.Div(x, y))
    left = g.Where(g.Greater(x, 0.0), g.Add(angle, pi), g.Sub(angle, pi))
    return g.Where(g.Less(y, 0.0), left, angle)


def _logaddexp(g: GraphBuilder, p: Params, x: str, y: str) -> Any:
    return g.Add(g.Max(x, y), g.Log(g.Add(g.Exp(g.Neg(g.Abs(g.Sub(x, y)))), 1.0)))


def _truth(g: GraphBuilder, x: str) -> str:
    return x if g.dtype(x) == "bool" else str(g.Cast(x, to="bool"))


def _logical(kind: str) -> Implementation:
    return graph(lambda g, p, x, y: getattr(g, kind)(_truth(g, x), _truth(g, y)), path=f"onnx.{kind}")


def _shift(direction: str) -> Implementation:
    """Cast to unsigned integers, as ONNX shifts only those; none of the values is negative."""
    unsigned = {"int64": "uint64", "int32": "uint32", "int16": "uint16", "int8": "uint8"}

    def draw(g: GraphBuilder, p: Params, x: str, y: str) -> Any:
        wide = unsigned.get(p["dtype"])
        if wide is None:
            return g.BitShift(x, y, direction=direction)
        return g.Cast(g.BitShift(g.Cast(x, to=wide), g.Cast(y, to=wide), direction=direction), to=p["dtype"])

    return graph(draw, path="onnx.BitShift")


def _finite(g: GraphBuilder, x: str) -> Any:
    return g.Not(g.Or(g.IsInf(x), g.IsNaN(x)))


def _add_n(g: GraphBuilder, p: Params, **terms: str) -> Any:
    """Add integers pairwise, as ONNX has Sum only for floats."""
    if is_float(p["dtype"]):
        return g.Sum(*terms.values())
    first, *others = terms.values()
    return reduce(g.Add, others, first) if others else g.Identity(first)


def _cast(g: GraphBuilder, p: Params, x: str) -> Any:
    """Copy if the type stays: engines remove a Cast to the same type."""
    return g.Identity(x) if p["to"] == p["dtype"] else g.Cast(x, to=p["to"])


IMPLEMENTATIONS = {
    **{name: node(kind, "x", "y") for name, kind in _NODES.items()},
    "not_equal": graph(lambda g, p, x, y: g.Not(g.Equal(x, y))),
    "floor_divide": graph(_floor_divide),
    "mod": graph(_mod),
    "fmod": node("Mod", "x", "y", fixed={"fmod": 1}),
    "hypot": graph(_hypot),
    "atan2": graph(_atan2),
    "logaddexp": graph(_logaddexp),
    "lerp": graph(lambda g, p, x, y: g.Add(x, g.Mul(g.Sub(y, x), p["weight"]))),
    "addcmul": graph(lambda g, p, x, y, z: g.Add(x, g.Mul(g.Mul(y, z), p["value"]))),
    "addcdiv": graph(lambda g, p, x, y, z: g.Add(x, g.Mul(g.Div(y, z), p["value"]))),
    "add_n": graph(_add_n, path="onnx.Sum"),
    "logical_and": _logical("And"),
    "logical_or": _logical("Or"),
    "logical_xor": _logical("Xor"),
    "logical_not": graph(lambda g, p, x: g.Not(_truth(g, x)), path="onnx.Not"),
    "isnan": node("IsNaN", "x"),
    "isinf": node("IsInf", "x"),
    "isfinite": graph(lambda g, p, x: _finite(g, x)),
    "bitwise_not": node("BitwiseNot", "x"),
    "bitwise_left_shift": _shift("LEFT"),
    "bitwise_right_shift": _shift("RIGHT"),
    "cast": graph(_cast, path="onnx.Cast"),
    "where": node("Where", "condition", "x", "y"),
}
