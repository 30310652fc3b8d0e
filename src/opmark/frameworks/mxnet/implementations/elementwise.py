"""Element-wise operators: arithmetic, rounding, truth values, activations, softmax, gated units."""

from __future__ import annotations

from math import pi
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.mxnet.implementations._rows import nd, np, np_row, refuse_float64, row
from opmark.plugin import Params
from opmark.schema.tensor import is_float

UNARY = {
    name: nd(name, "x")
    for name in (
        "abs", "negative", "sign", "identity", "reciprocal", "square", "sqrt", "rsqrt", "cbrt", "rcbrt", "exp",
        "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh",
        "tanh", "arcsinh", "arccosh", "arctanh",   "erf", "erfinv", "gamma", "gammaln", "ceil",
        "floor", "trunc", "softsign",
    )
}  # fmt: skip

# Operators whose name differs from that of MXNet's function.
BINARY = {
    "add": "broadcast_add",
    "sub": "broadcast_sub",
    "mul": "broadcast_mul",
    "div": "broadcast_div",
    "mod": "broadcast_mod",
    "power": "broadcast_power",
    "hypot": "broadcast_hypot",
    "maximum": "broadcast_maximum",
    "minimum": "broadcast_minimum",
}

COMPARED = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
TESTED = ("isnan", "isinf", "isfinite")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")


def _clip(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.clip(x, p["low"], p["high"])


def _cast(mx: Any, p: Params, x: Any) -> Any:
    if p["to"] == "bfloat16":
        raise Unsupported("MXNet has no bfloat16 outside of its automatic mixed precision")
    return mx.nd.cast(x, dtype=p["to"])


def _truth(name: str) -> Any:
    """Make a comparison that returns bool: `mxnet.nd` returns the type of its inputs, which is cast."""

    def call(mx: Any, p: Params, **inputs: Any) -> Any:
        return getattr(mx.nd, name)(*inputs.values()).astype("bool")

    return row(call, f"mxnet.nd.{name}")


def _fmod(mx: Any, p: Params, x: Any, y: Any) -> Any:
    """Compute the remainder with the sign of x, which MXNet's own remainder does not have."""
    if not is_float(p["dtype"]):
        raise Unsupported("MXNet divides integers as floats")
    return x - mx.nd.broadcast_mul(mx.nd.trunc(mx.nd.broadcast_div(x, y)), y)


def _floor_divide(mx: Any, p: Params, x: Any, y: Any) -> Any:
    if not is_float(p["dtype"]):
        raise Unsupported("MXNet divides integers as floats")
    return mx.nd.floor(mx.nd.broadcast_div(x, y))


def _logaddexp(mx: Any, p: Params, x: Any, y: Any) -> Any:
    top = mx.nd.broadcast_maximum(x, y)
    return top + mx.nd.log1p(mx.nd.exp(-mx.nd.abs(mx.nd.broadcast_sub(x, y))))


def _add_n(mx: Any, p: Params, **terms: Any) -> Any:
    return mx.nd.add_n(*terms.values())


# Activations, softmax and similar functions, gated units.


def _leaky(act_type: str, *inputs: str, **params: str) -> Any:
    made = nd("LeakyReLU", "x", *inputs, fixed={"act_type": act_type}, **params)
    return made if act_type == "elu" else refuse_float64(made)


def _gelu(mx: Any, p: Params, x: Any) -> Any:
    if p["approximate"] == "none":
        return mx.nd.LeakyReLU(x, act_type="gelu")
    return 0.5 * x * (1 + mx.nd.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def _celu(mx: Any, p: Params, x: Any) -> Any:
    negative = p["alpha"] * mx.nd.expm1(mx.nd.clip(x, float("-inf"), 0) / p["alpha"])
    return mx.nd.relu(x) + negative


def _softplus(mx: Any, p: Params, x: Any) -> Any:
    if p["beta"] == 1:
        return mx.nd.Activation(x, act_type="softrelu")
    return mx.nd.Activation(p["beta"] * x, act_type="softrelu") / p["beta"]


def _softshrink(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.sign(x) * mx.nd.relu(mx.nd.abs(x) - p["lambd"])


def _hardshrink(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.where(mx.nd.abs(x) > p["lambd"], x, mx.nd.zeros_like(x))


def _threshold(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.where(x > p["threshold"], x, mx.nd.full(x.shape, p["value"], dtype=x.dtype))


def _hard_sigmoid(mx: Any, x: Any) -> Any:
    """Write out the formula: MXNet's own function takes the slope as a float32 parameter."""
    return mx.nd.hard_sigmoid(x, alpha=1 / 6, beta=0.5)


def _halves(mx: Any, x: Any) -> Any:
    return mx.nd.split(x, num_outputs=2, axis=-1)


def _gated_unit(activate: Any) -> Any:
    def call(mx: Any, p: Params, x: Any) -> Any:
        gate, value = _halves(mx, x)
        return activate(mx, gate) * value

    return row(call)


def _glu(mx: Any, p: Params, x: Any) -> Any:
    value, gate = _halves(mx, x)
    return value * mx.nd.sigmoid(gate)


def _masked_softmax(mx: Any, p: Params, x: Any, mask: Any) -> Any:
    return mx.npx.softmax(mx.np.where(mask, x, mx.np.full_like(x, float("-inf"))), axis=p["axis"])


IMPLEMENTATIONS = {
    **UNARY,
    **{name: nd(path, "x", "y") for name, path in BINARY.items()},
    **{name: np(name, "x", "y") for name in (*COMPARED, *BITS)},
    **{name: np(name, "x") for name in (*TESTED, "bitwise_not", "nan_to_num")},
    **{name: refuse_float64(nd(name, "x"), "π") for name in ("degrees", "radians")},
    "atan2": np("arctan2", "x", "y"),
    "logical_not": np("logical_not", "x"),
    **{f"logical_{word}": _truth(f"broadcast_logical_{word}") for word in ("and", "or", "xor")},
    "frac": row(lambda mx, p, x: x - mx.nd.trunc(x)),
    "exp2": np_row(lambda mx, p, x: mx.np.power(2.0, x)),
    "logit": row(lambda mx, p, x: mx.nd.log(x / (1 - x))),
    "sinc": row(lambda mx, p, x: mx.nd.sin(x * pi) / (x * pi)),
    "erfc": row(lambda mx, p, x: 1 - mx.nd.erf(x)),
    "clip": row(_clip, "mxnet.nd.clip"),
    "cast": row(_cast, "mxnet.nd.cast"),
    "fmod": row(_fmod),
    "floor_divide": row(_floor_divide),
    "logaddexp": row(_logaddexp),
    "lerp": row(lambda mx, p, x, y: x + p["weight"] * (y - x)),
    "addcmul": row(lambda mx, p, x, y, z: x + p["value"] * y * z),
    "addcdiv": row(lambda mx, p, x, y, z: x + p["value"] * y / z),
    "add_n": row(_add_n, "mxnet.nd.add_n"),
    "relu": nd("relu", "x"),
    "relu6": nd("clip", "x", fixed={"a_min": 0.0, "a_max": 6.0}),
    "hardtanh": nd("clip", "x", a_min="min_val", a_max="max_val"),
    "leaky_relu": _leaky("leaky", slope="negative_slope"),
    "elu": _leaky("elu", slope="alpha"),
    "selu": _leaky("selu"),
    "prelu": _leaky("prelu", "weight"),
    "gelu": refuse_float64(row(_gelu, "mxnet.nd.LeakyReLU")),
    "celu": row(_celu),
    "silu": row(lambda mx, p, x: x * mx.nd.sigmoid(x)),
    "mish": row(lambda mx, p, x: x * mx.nd.tanh(mx.nd.Activation(x, act_type="softrelu"))),
    "sigmoid": nd("sigmoid", "x"),
    "log_sigmoid": row(lambda mx, p, x: -mx.nd.Activation(-x, act_type="softrelu")),
    "softplus": row(_softplus, "mxnet.nd.Activation"),
    "hard_sigmoid": refuse_float64(row(lambda mx, p, x: _hard_sigmoid(mx, x), "mxnet.nd.hard_sigmoid")),
    "hardswish": refuse_float64(row(lambda mx, p, x: x * _hard_sigmoid(mx, x))),
    "tanhshrink": row(lambda mx, p, x: x - mx.nd.tanh(x)),
    "softshrink": row(_softshrink),
    "hardshrink": row(_hardshrink),
    "threshold": row(_threshold),
    **{name: nd(name, "x", axis="axis") for name in ("softmax", "log_softmax", "softmin")},
    "masked_softmax": np_row(_masked_softmax, "mxnet.npx.softmax"),
    "glu": row(_glu),
    "swiglu": _gated_unit(lambda mx, gate: gate * mx.nd.sigmoid(gate)),
    "geglu": refuse_float64(_gated_unit(lambda mx, gate: mx.nd.LeakyReLU(gate, act_type="gelu"))),
    "reglu": _gated_unit(lambda mx, gate: mx.nd.relu(gate)),
}
