"""Element-wise operators: arithmetic, powers, special functions, comparisons, logic, bits, activations, softmax."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.implementation import calls
from opmark.frameworks.tensorflow.implementations._rows import implement
from opmark.plugin import Implementation, Params

# TensorFlow's names of operators, if they differ.
_UNARY = {
    **{name: name for name in (
        "abs", "negative", "sign", "reciprocal", "square", "sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "sin",
        "cos", "tan", "sinh", "cosh", "tanh", "erf", "erfc", "erfinv", "digamma", "ceil", "floor", "round",
    )},
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "gammaln": "lgamma", "isfinite": "is_finite", "isinf": "is_inf", "isnan": "is_nan",
}  # fmt: skip
_BINARY = {
    **{name: name for name in (
        "add", "maximum", "minimum", "atan2", "equal", "not_equal", "greater", "greater_equal", "less", "less_equal",
    )},
    "sub": "subtract", "mul": "multiply", "div": "divide", "power": "pow", "mod": "floormod",
}  # fmt: skip
_BITS = {
    **{f"bitwise_{name}": f"bitwise_{name}" for name in ("and", "or", "xor")},
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
}


def copy(tf: Any, p: Params, x: Any) -> Any:
    """Copy a tensor: `tf.identity` would return the same memory."""
    return tf.raw_ops.DeepCopy(x=x)


def _trunc(tf: Any, p: Params, x: Any) -> Any:
    """Round towards zero by TensorFlow's NumPy interface, the only one that has it."""
    return tf.where(x < 0, tf.math.ceil(x), tf.math.floor(x))


def _cast(tf: Any, p: Params, x: Any) -> Any:
    """Copy if the type stays, as TensorFlow skips such a cast."""
    return copy(tf, p, x) if p["to"] == p["dtype"] else tf.cast(x, p["to"])


def _nan_to_num(tf: Any, p: Params, x: Any) -> Any:
    return tf.clip_by_value(tf.where(tf.math.is_nan(x), tf.zeros_like(x), x), x.dtype.min, x.dtype.max)


def _logaddexp(tf: Any, p: Params, x: Any, y: Any) -> Any:
    return tf.maximum(x, y) + tf.math.log1p(tf.exp(-tf.abs(x - y)))


def _sinc(tf: Any, p: Params, x: Any) -> Any:
    turned = pi * x
    return tf.where(tf.equal(x, 0), tf.ones_like(x), tf.sin(turned) / turned)


def _floordiv(tf: Any, p: Params, x: Any, y: Any) -> Any:
    if x.dtype.is_floating and x.dtype.size < 4:
        raise Unsupported("TensorFlow rounds the quotient to 16 bits before rounding it down")
    return tf.math.floordiv(x, y)


def _logical(name: str) -> Implementation:
    """Compare with zero first, as TensorFlow's logical functions take only bool."""

    def function(tf: Any, p: Params, **tensors: Any) -> Any:
        return getattr(tf.math, name)(*(tf.cast(tensor, tf.bool) for tensor in tensors.values()))

    return implement(function, f"tensorflow.math.{name}")


# Activations, softmax and similar functions, gated units.


def _leaky_relu(tf: Any, p: Params, x: Any) -> Any:
    """Write float64 out, as TensorFlow keeps the slope in 32 bits."""
    slope = p["negative_slope"]
    return tf.where(x > 0, x, slope * x) if x.dtype == tf.float64 else tf.nn.leaky_relu(x, alpha=slope)


def gelu(tf: Any, x: Any, approximate: bool = False) -> Any:
    """Write float64 out, as TensorFlow keeps the constants in 32 bits."""
    if x.dtype != tf.float64:
        return tf.nn.gelu(x, approximate=approximate)
    if approximate:
        return 0.5 * x * (1 + tf.tanh((2 / pi) ** 0.5 * (x + 0.044715 * tf.pow(x, 3))))
    return 0.5 * x * tf.math.erfc(-x * 0.5**0.5)


def _elu(tf: Any, p: Params, x: Any) -> Any:
    """Scale the negative part by alpha, as Keras does: TensorFlow's function has no alpha."""
    y = tf.nn.elu(x)
    return y if p["alpha"] == 1 else tf.where(x > 0, y, p["alpha"] * y)


def _celu(tf: Any, p: Params, x: Any) -> Any:
    return tf.nn.elu(x) if p["alpha"] == 1 else p["alpha"] * tf.nn.elu(x / p["alpha"])


def _softplus(tf: Any, p: Params, x: Any) -> Any:
    return tf.math.softplus(x) if p["beta"] == 1 else tf.math.softplus(p["beta"] * x) / p["beta"]


def _prelu(tf: Any, p: Params, x: Any, weight: Any) -> Any:
    slope = tf.reshape(weight, (-1, *[1] * (len(x.shape) - 2)))
    return tf.where(x > 0, x, slope * x)


def _masked_softmax(tf: Any, p: Params, x: Any, mask: Any) -> Any:
    return tf.nn.softmax(tf.where(mask, x, tf.constant(float("-inf"), x.dtype)), axis=p["axis"])


def _gated_unit(activation: Callable[[Any, Any], Any]) -> Implementation:
    """Make a gated unit: the activation of the first half times the second half."""

    def function(tf: Any, p: Params, x: Any) -> Any:
        gate, value = tf.split(x, 2, axis=-1)
        return activation(tf, gate) * value

    return implement(function)


def _glu(tf: Any, p: Params, x: Any) -> Any:
    value, gate = tf.split(x, 2, axis=-1)
    return value * tf.sigmoid(gate)


IMPLEMENTATIONS = {
    **{name: calls(f"tensorflow.math.{function}", "x") for name, function in _UNARY.items()},
    **{name: calls(f"tensorflow.math.{function}", "x", "y") for name, function in _BINARY.items()},
    **{name: calls(f"tensorflow.bitwise.{function}", "x", "y") for name, function in _BITS.items()},
    "bitwise_not": calls("tensorflow.bitwise.invert", "x"),
    **{name: _logical(name) for name in ("logical_and", "logical_or", "logical_xor", "logical_not")},
    "floor_divide": implement(_floordiv, "tensorflow.math.floordiv"),
    "identity": implement(copy, "tensorflow.raw_ops.DeepCopy"),
    "cast": implement(_cast, "tensorflow.cast"),
    "cbrt": implement(lambda tf, p, x: tf.sign(x) * tf.pow(tf.abs(x), 1 / 3)),
    "rcbrt": implement(lambda tf, p, x: tf.sign(x) * tf.pow(tf.abs(x), -1 / 3)),
    "exp2": implement(lambda tf, p, x: tf.pow(tf.cast(2, x.dtype), x)),
    "log2": implement(lambda tf, p, x: tf.math.log(x) * (1 / log(2))),
    "log10": implement(lambda tf, p, x: tf.math.log(x) * (1 / log(10))),
    "logit": implement(lambda tf, p, x: tf.math.log(x / (1 - x))),
    "degrees": implement(lambda tf, p, x: x * (180 / pi)),
    "radians": implement(lambda tf, p, x: x * (pi / 180)),
    "sinc": implement(_sinc),
    "gamma": implement(lambda tf, p, x: tf.exp(tf.math.lgamma(x))),
    "trunc": implement(_trunc),
    "frac": implement(lambda tf, p, x: x - _trunc(tf, p, x)),
    "clip": calls("tensorflow.clip_by_value", "x", clip_value_min="low", clip_value_max="high"),
    "nan_to_num": implement(_nan_to_num),
    "fmod": implement(lambda tf, p, x, y: tf.truncatemod(x, y), "tensorflow.truncatemod"),
    "hypot": implement(lambda tf, p, x, y: tf.sqrt(tf.square(x) + tf.square(y))),
    "logaddexp": implement(_logaddexp),
    "lerp": implement(lambda tf, p, x, y: x + p["weight"] * (y - x)),
    "add_n": implement(lambda tf, p, **xs: tf.add_n(list(xs.values())), "tensorflow.add_n"),
    "addcmul": implement(lambda tf, p, x, y, z: x + p["value"] * y * z),
    "addcdiv": implement(lambda tf, p, x, y, z: x + p["value"] * y / z),
    **{name: calls(f"tensorflow.nn.{name}", "x") for name in ("relu", "relu6", "selu", "silu", "sigmoid", "softsign")},
    "leaky_relu": implement(_leaky_relu, "tensorflow.nn.leaky_relu"),
    "elu": implement(_elu, "tensorflow.nn.elu"),
    "celu": implement(_celu),
    "gelu": implement(lambda tf, p, x: gelu(tf, x, p["approximate"] == "tanh"), "tensorflow.nn.gelu"),
    "mish": implement(lambda tf, p, x: x * tf.tanh(tf.math.softplus(x))),
    "hard_sigmoid": implement(lambda tf, p, x: tf.nn.relu6(x + 3) / 6),
    "hardswish": implement(lambda tf, p, x: x * tf.nn.relu6(x + 3) / 6),
    "log_sigmoid": calls("tensorflow.math.log_sigmoid", "x"),
    "softplus": implement(_softplus, "tensorflow.math.softplus"),
    "tanhshrink": implement(lambda tf, p, x: x - tf.tanh(x)),
    "hardtanh": calls("tensorflow.clip_by_value", "x", clip_value_min="min_val", clip_value_max="max_val"),
    "softshrink": implement(lambda tf, p, x: tf.sign(x) * tf.nn.relu(tf.abs(x) - p["lambd"])),
    "hardshrink": implement(lambda tf, p, x: tf.where(tf.abs(x) > p["lambd"], x, tf.zeros_like(x))),
    "threshold": implement(lambda tf, p, x: tf.where(x > p["threshold"], x, tf.cast(p["value"], x.dtype))),
    "prelu": implement(_prelu),
    "softmax": calls("tensorflow.nn.softmax", "x", axis="axis"),
    "log_softmax": calls("tensorflow.nn.log_softmax", "x", axis="axis"),
    "softmin": implement(lambda tf, p, x: tf.nn.softmax(-x, axis=p["axis"])),
    "masked_softmax": implement(_masked_softmax),
    "glu": implement(_glu),
    "geglu": _gated_unit(gelu),
    "swiglu": _gated_unit(lambda tf, gate: tf.nn.silu(gate)),
    "reglu": _gated_unit(lambda tf, gate: tf.nn.relu(gate)),
}
