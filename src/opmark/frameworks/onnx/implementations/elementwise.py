"""Element-wise functions and activations of one tensor, and operators on two or three tensors."""

from __future__ import annotations

from functools import reduce
from math import log, pi
from typing import Any

from opmark.frameworks.onnx.implementations._graph import GraphBuilder, graph, node
from opmark.plugin import Implementation, Params
from opmark.schema.tensor import is_float

_NODES = {
    "abs": "Abs", "negative": "Neg", "sign": "Sign", "identity": "Identity", "reciprocal": "Reciprocal",
    "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "arcsin": "Asin",
    "arccos": "Acos", "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "arcsinh": "Asinh",
    "arccosh": "Acosh", "arctanh": "Atanh", "erf": "Erf", "ceil": "Ceil", "floor": "Floor", "round": "Round",
    "relu": "Relu", "sigmoid": "Sigmoid", "softsign": "Softsign", "selu": "Selu", "mish": "Mish",
    "hardswish": "HardSwish",
}  # fmt: skip


def silu(g: GraphBuilder, x: str) -> Any:
    return g.Mul(x, g.Sigmoid(x))


def gelu(g: GraphBuilder, x: str, approximate: str = "none") -> Any:
    return g.Gelu(x, approximate=approximate)


def log1p(g: GraphBuilder, x: str) -> Any:
    return g.Log(g.Add(x, 1.0))


def _trunc(g: GraphBuilder, x: str) -> Any:
    return g.Mul(g.Sign(x), g.Floor(g.Abs(x)))


def _sinc(g: GraphBuilder, p: Params, x: str) -> Any:
    turned = g.Mul(x, pi)
    return g.Where(g.Equal(x, 0.0), 1.0, g.Div(g.Sin(turned), turned))


def _softplus(g: GraphBuilder, p: Params, x: str) -> Any:
    if p["beta"] == 1.0:
        return g.Softplus(x)
    return g.Div(g.Softplus(g.Mul(x, p["beta"])), p["beta"])


def _celu(g: GraphBuilder, p: Params, x: str) -> Any:
    """Use Elu, as ONNX has Celu only for float32."""
    if p["dtype"] == "float32":
        return g.Celu(x, alpha=p["alpha"])
    return g.Mul(g.Elu(g.Div(x, p["alpha"]), alpha=1.0), p["alpha"])


def _shrink(g: GraphBuilder, x: str, edge: float, by: float) -> Any:
    """Write float64 out: ONNX Runtime computes the node in float32 for every type."""
    if g.dtype(x) != "float64":
        return g.Shrink(x, lambd=edge, bias=by)
    small = g.LessOrEqual(g.Abs(x), edge)
    return g.Where(small, 0.0, g.Sub(x, g.Mul(g.Sign(x), by)) if by else x)


def _nan_to_num(g: GraphBuilder, p: Params, x: str) -> Any:
    """Clip's default limits are those of the type."""
    largest = {"float64": 1.7976931348623157e308, "float32": 3.4028234663852886e38, "float16": 65504.0}
    if p["dtype"] not in largest:
        largest[p["dtype"]] = 3.3895313892515355e38
    finite = g.Where(g.IsNaN(x), 0.0, x)
    return g.Clip(finite, -largest[p["dtype"]], largest[p["dtype"]])


def _glu(gate: Any) -> Any:
    """Multiply `gate` of the first half of the last axis with the second half."""

    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        first, second = g.Split(x, outputs=2, axis=-1, num_outputs=2)
        return g.Mul(gate(g, first), second)

    return graph(draw)


def _plain_glu(g: GraphBuilder, p: Params, x: str) -> Any:
    first, second = g.Split(x, outputs=2, axis=-1, num_outputs=2)
    return g.Mul(first, g.Sigmoid(second))


# Element-wise operators on two or three tensors: arithmetic, comparisons, bits, casts.

_PAIR_NODES = {
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
    **{name: node(kind, "x") for name, kind in _NODES.items()},
    "square": graph(lambda g, p, x: g.Mul(x, x)),
    "rsqrt": graph(lambda g, p, x: g.Reciprocal(g.Sqrt(x))),
    "cbrt": graph(lambda g, p, x: g.Mul(g.Sign(x), g.Pow(g.Abs(x), 1 / 3))),
    "rcbrt": graph(lambda g, p, x: g.Mul(g.Sign(x), g.Pow(g.Abs(x), -1 / 3))),
    "exp2": graph(lambda g, p, x: g.Pow(g.constant(2.0, g.dtype(x)), x)),
    "expm1": graph(lambda g, p, x: g.Sub(g.Exp(x), 1.0)),
    "log2": graph(lambda g, p, x: g.Div(g.Log(x), log(2))),
    "log10": graph(lambda g, p, x: g.Div(g.Log(x), log(10))),
    "log1p": graph(lambda g, p, x: log1p(g, x)),
    "logit": graph(lambda g, p, x: g.Log(g.Div(x, g.Sub(1.0, x)))),
    "degrees": graph(lambda g, p, x: g.Mul(x, 180 / pi)),
    "radians": graph(lambda g, p, x: g.Mul(x, pi / 180)),
    "sinc": graph(_sinc),
    "erfc": graph(lambda g, p, x: g.Sub(1.0, g.Erf(x))),
    "clip": graph(lambda g, p, x: g.Clip(x, p["low"], p["high"]), path="onnx.Clip"),
    "nan_to_num": graph(_nan_to_num),
    "trunc": graph(lambda g, p, x: _trunc(g, x)),
    "frac": graph(lambda g, p, x: g.Sub(x, _trunc(g, x))),
    "relu6": graph(lambda g, p, x: g.Clip(x, 0.0, 6.0), path="onnx.Clip"),
    "hardtanh": graph(lambda g, p, x: g.Clip(x, p["min_val"], p["max_val"]), path="onnx.Clip"),
    "leaky_relu": node("LeakyRelu", "x", alpha="negative_slope"),
    "elu": node("Elu", "x", alpha="alpha"),
    "celu": graph(_celu, path="onnx.Celu"),
    "gelu": node("Gelu", "x", approximate="approximate"),
    "hard_sigmoid": node("HardSigmoid", "x", fixed={"alpha": 1 / 6, "beta": 0.5}),
    "softshrink": graph(lambda g, p, x: _shrink(g, x, p["lambd"], p["lambd"]), path="onnx.Shrink"),
    "hardshrink": graph(lambda g, p, x: _shrink(g, x, p["lambd"], 0.0), path="onnx.Shrink"),
    "silu": graph(lambda g, p, x: silu(g, x)),
    "log_sigmoid": graph(lambda g, p, x: g.Log(g.Sigmoid(x))),
    "softplus": graph(_softplus, path="onnx.Softplus"),
    "tanhshrink": graph(lambda g, p, x: g.Sub(x, g.Tanh(x))),
    "threshold": graph(lambda g, p, x: g.Where(g.Greater(x, p["threshold"]), x, p["value"])),
    "prelu": graph(
        lambda g, p, x, weight: g.PRelu(x, g.Reshape(weight, [-1, *[1] * (len(p["shape"]) - 2)])), path="onnx.PRelu"
    ),
    "glu": graph(_plain_glu),
    "swiglu": _glu(silu),
    "geglu": _glu(gelu),
    "reglu": _glu(lambda g, x: g.Relu(x)),
    **{name: node(kind, "x", "y") for name, kind in _PAIR_NODES.items()},
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
