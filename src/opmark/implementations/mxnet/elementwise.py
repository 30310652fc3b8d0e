"""Element-wise operators: arithmetic, rounding, truth values."""

from __future__ import annotations

from math import pi
from typing import Any

from opmark.errors import Unsupported
from opmark.implementations.mxnet._rows import nd, np, np_row, refuse_float64, row
from opmark.schema import Params
from opmark.schema.dtype import is_float

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
}
