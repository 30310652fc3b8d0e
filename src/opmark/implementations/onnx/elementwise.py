"""Element-wise functions and activations of one tensor."""

from __future__ import annotations

from math import log, pi
from typing import Any

from opmark.implementations.onnx._graph import GraphBuilder, graph, node
from opmark.schema import Params

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
}
