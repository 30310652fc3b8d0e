"""Normalisation along the last axis and by channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.tensorflow.implementations._rows import TRANSPOSED, implement
from opmark.plugin import Params


def _wide(tf: Any, x: Any) -> Any:
    """Convert 16-bit types to float32, as Keras does."""
    return tf.cast(x, tf.float32) if x.dtype.size < 4 else x


def _normal(tf: Any, p: Params, x: Any, axes: Sequence[int]) -> Any:
    mean, variance = tf.nn.moments(x, axes=list(axes), keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + p["eps"])


def _layer_norm(tf: Any, p: Params, x: Any, weight: Any, bias: Any = None) -> Any:
    """Compose it of moments and batch_normalization, as TensorFlow has no function for it."""
    wide = _wide(tf, x)
    mean, variance = tf.nn.moments(wide, axes=[-1], keepdims=True)
    offset, scale = None if bias is None else tf.cast(bias, wide.dtype), tf.cast(weight, wide.dtype)
    return tf.cast(tf.nn.batch_normalization(wide, mean, variance, offset, scale, p["eps"]), x.dtype)


def _rms_norm(tf: Any, p: Params, x: Any, weight: Any) -> Any:
    wide = _wide(tf, x)
    found = wide * tf.math.rsqrt(tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True) + p["eps"])
    return tf.cast(found * tf.cast(weight, wide.dtype), x.dtype)


def _add_rms_norm(tf: Any, p: Params, x: Any, residual: Any, weight: Any) -> Any:
    added = x + residual
    return _rms_norm(tf, p, added, weight), added


def _head_rms_norm(tf: Any, p: Params, x: Any, weight: Any) -> Any:
    heads = p["norm_heads"] or p["heads"] - p["norm_start"]
    return _rms_norm(tf, p, x[:, p["norm_start"] : p["norm_start"] + heads], weight)


def _per_channel(tf: Any, vector: Any, x: Any) -> Any:
    """Reshape one value per channel so that it broadcasts over x."""
    return tf.reshape(tf.cast(vector, x.dtype), (-1, *[1] * (len(x.shape) - 2)))


def _group_norm(groups: Callable[[Params], int]) -> Callable[..., Any]:
    def function(tf: Any, p: Params, x: Any, weight: Any, bias: Any) -> Any:
        rows = tf.reshape(_wide(tf, x), (x.shape[0], groups(p), -1))
        normal = tf.reshape(_normal(tf, p, rows, [-1]), x.shape)
        return tf.cast(normal * _per_channel(tf, weight, normal) + _per_channel(tf, bias, normal), x.dtype)

    return function


def batch_norm(tf: Any, p: Params, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any) -> Any:
    """Call the fused function for images; other shapes and float64, which it lacks, use moments. Tensors are immutable,
    so the running statistics are returned as new ones."""
    if len(x.shape) != 4 or p["dtype"] == "float64":
        return _batch_norm_by_moments(tf, p, x, weight, bias, running_mean, running_var)
    vectors = [tf.cast(vector, tf.float32) for vector in (weight, bias, running_mean, running_var)]
    found = tf.compat.v1.nn.fused_batch_norm(
        x, *vectors, epsilon=p["eps"], data_format="NCHW", is_training=p["training"],
        exponential_avg_factor=p["momentum"],
    )  # fmt: skip
    if not p["training"]:
        return found[0]
    return found[0], *map(tf.stop_gradient, found[1:])


def _batch_norm_by_moments(
    tf: Any, p: Params, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any
) -> Any:
    wide = _wide(tf, x)
    mean, variance = (tf.cast(vector, wide.dtype) for vector in (running_mean, running_var))
    others = [0, *range(2, len(x.shape))]
    if p["training"]:
        mean, variance = tf.nn.moments(wide, axes=others)
    vectors = (_per_channel(tf, vector, wide) for vector in (mean, variance, bias, weight))
    y = tf.cast(tf.nn.batch_normalization(wide, *vectors, p["eps"]), x.dtype)
    if not p["training"]:
        return y
    n, momentum = x.shape.num_elements() // x.shape[1], p["momentum"]
    old = (tf.cast(vector, wide.dtype) for vector in (running_mean, running_var))
    new = (mean, variance * (n / (n - 1)))
    updated = ((1 - momentum) * before + momentum * now for before, now in zip(old, new, strict=True))
    return y, *map(tf.stop_gradient, updated)


def _l2_normalize(tf: Any, p: Params, x: Any) -> Any:
    """Square the epsilon, as TensorFlow applies it to the squared length."""
    rank = len(x.shape)
    axes = {"channel": [1], "instance": list(range(1, rank)), "spatial": list(range(2, rank))}[p["mode"]]
    return tf.math.l2_normalize(x, axis=axes, epsilon=p["eps"] ** 2)


def _weight_norm(tf: Any, p: Params, v: Any, g: Any) -> Any:
    return tf.math.l2_normalize(v, axis=list(range(1, len(v.shape)))) * g


def _lrn(tf: Any, p: Params, x: Any) -> Any:
    """TensorFlow takes only images with channels last and an odd number of neighbours."""
    if p["size"] % 2 == 0 or len(x.shape) != 4 or p["dtype"] == "float64":
        raise Unsupported("TensorFlow's lrn needs an odd size, four axes and a type other than float64")
    found = tf.nn.local_response_normalization(
        tf.transpose(x, (0, 2, 3, 1)), p["size"] // 2, p["k"], p["alpha"] / p["size"], p["beta"]
    )
    return tf.transpose(found, (0, 3, 1, 2))


def _add_layer_norm(tf: Any, p: Params, x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    return _layer_norm(tf, p, x + residual, weight, bias)


# Single steps of recurrent units with the catalogue's weights. Keras has the gates in another order and transposed
# weights, but the same products.


def _product(tf: Any, x: Any, weight: Any, bias: Any) -> Any:
    return tf.nn.bias_add(tf.matmul(x, weight, transpose_b=True), bias)


def _rnn(tf: Any, p: Params, x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    return getattr(tf.nn, p["nonlinearity"])(_product(tf, x, w_ih, b_ih) + _product(tf, h, w_hh, b_hh))


def _gru(tf: Any, p: Params, x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    of_x, of_h = (tf.split(part, 3, axis=1) for part in (_product(tf, x, w_ih, b_ih), _product(tf, h, w_hh, b_hh)))
    reset, update = (tf.sigmoid(one + other) for one, other in zip(of_x[:2], of_h[:2], strict=True))
    new = tf.tanh(of_x[2] + reset * of_h[2])
    return new + update * (h - new)


def _lstm(tf: Any, p: Params, x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    gates = _product(tf, x, w_ih, b_ih) + _product(tf, h, w_hh, b_hh)
    into, forget, cell, out = tf.split(gates, 4, axis=1)
    c = tf.sigmoid(forget) * c + tf.sigmoid(into) * tf.tanh(cell)
    return tf.sigmoid(out) * tf.tanh(c), c


IMPLEMENTATIONS = {
    "layer_norm": implement(_layer_norm),
    "add_layer_norm": implement(_add_layer_norm),
    "rms_norm": implement(_rms_norm),
    "add_rms_norm": implement(_add_rms_norm),
    "head_rms_norm": implement(_head_rms_norm),
    "group_norm": implement(_group_norm(lambda p: int(p["groups"]))),
    "instance_norm": implement(_group_norm(lambda p: int(p["shape"][1]))),
    "batch_norm": implement(batch_norm, "tensorflow.compat.v1.nn.fused_batch_norm"),
    "l2_normalize": implement(_l2_normalize, "tensorflow.math.l2_normalize"),
    "weight_norm": implement(_weight_norm),
    "lrn": implement(_lrn, "tensorflow.nn.local_response_normalization", name=TRANSPOSED),
    "rnn_cell": implement(_rnn),
    "gru_cell": implement(_gru),
    "lstm_cell": implement(_lstm),
}
