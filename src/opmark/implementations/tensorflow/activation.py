"""Activations, softmax and similar functions, gated units."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

from opmark.implementations._rows import calls
from opmark.implementations.tensorflow._rows import implement
from opmark.schema import Implementation, Params


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
