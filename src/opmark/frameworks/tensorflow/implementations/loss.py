"""Losses. TensorFlow's own functions leave the reduction to the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.frameworks.tensorflow.implementations._rows import implement
from opmark.plugin import Implementation, Params


def _reduce(losses: Callable[..., Any], path: str = "") -> Implementation:
    def function(tf: Any, p: Params, **tensors: Any) -> Any:
        each = losses(tf, p, **tensors)
        if p["reduction"] == "none":
            return each
        return tf.reduce_mean(each) if p["reduction"] == "mean" else tf.reduce_sum(each)

    return implement(function, path)


def _smooth(tf: Any, distance: Any, end: float) -> Any:
    return tf.where(distance < end, tf.square(distance) * (0.5 / end), distance - end / 2)


def _huber(tf: Any, p: Params, x: Any, target: Any) -> Any:
    distance, delta = tf.abs(x - target), p["delta"]
    return tf.where(distance < delta, tf.square(distance) / 2, delta * (distance - delta / 2))


def _bce_with_logits(tf: Any, p: Params, x: Any, target: Any) -> Any:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=x)


def _kl_div(tf: Any, p: Params, x: Any, target: Any) -> Any:
    each = target * (tf.math.log(target) - x)
    if p["reduction"] == "none":
        return each
    total = tf.reduce_sum(each)
    return total / x.shape[0] if p["reduction"] == "batchmean" else total


def _poisson(tf: Any, p: Params, x: Any, target: Any) -> Any:
    return tf.nn.log_poisson_loss(target, x) if p["log_input"] else x - target * tf.math.log(x + 1e-8)


def _cross_entropy(tf: Any, p: Params, x: Any, target: Any) -> Any:
    smooth = p["label_smoothing"]
    if not smooth:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=x)
    labels = tf.one_hot(target, x.shape[1], on_value=1 - smooth, off_value=0.0, dtype=x.dtype) + smooth / x.shape[1]
    return tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=x)


def _right(tf: Any, x: Any, target: Any) -> Any:
    return tf.gather(x, target, axis=1, batch_dims=1)


def _multi_margin(tf: Any, p: Params, x: Any, target: Any) -> Any:
    """Exclude the right class, which would add the margin."""
    lost = tf.nn.relu(p["margin"] - _right(tf, x, target)[:, None] + x)
    return tf.reduce_mean(tf.where(tf.one_hot(target, x.shape[1], True, False), tf.zeros_like(lost), lost), axis=1)


def _cosine(tf: Any, p: Params, x: Any, other: Any, target: Any) -> Any:
    one, two = (tf.math.l2_normalize(vectors, axis=1) for vectors in (x, other))
    cosine = tf.reduce_sum(one * two, axis=1)
    return tf.where(target > 0, 1 - cosine, tf.nn.relu(cosine - p["margin"]))


def _triplet(tf: Any, p: Params, anchor: Any, positive: Any, negative: Any) -> Any:
    near, far = (tf.norm(anchor - other + 1e-6, axis=1) for other in (positive, negative))
    return tf.nn.relu(near - far + p["margin"])


IMPLEMENTATIONS = {
    "l1_loss": _reduce(lambda tf, p, x, target: tf.abs(x - target)),
    "mse_loss": _reduce(
        lambda tf, p, x, target: tf.math.squared_difference(x, target), "tensorflow.math.squared_difference"
    ),
    "smooth_l1_loss": _reduce(lambda tf, p, x, target: _smooth(tf, tf.abs(x - target), p["beta"])),
    "smooth_l1": _reduce(lambda tf, p, x: _smooth(tf, tf.abs(x), p["sigma"] ** -2)),
    "huber_loss": _reduce(_huber),
    "bce_loss": _reduce(lambda tf, p, x, target: -(target * tf.math.log(x) + (1 - target) * tf.math.log1p(-x))),
    "bce_with_logits": _reduce(_bce_with_logits, "tensorflow.nn.sigmoid_cross_entropy_with_logits"),
    "multilabel_soft_margin_loss": _reduce(
        lambda tf, p, x, target: tf.reduce_mean(_bce_with_logits(tf, p, x, target), axis=1)
    ),
    "kl_div": implement(_kl_div),
    "poisson_nll_loss": _reduce(_poisson, "tensorflow.nn.log_poisson_loss"),
    "gaussian_nll_loss": _reduce(
        lambda tf, p, x, target, var: (tf.math.log(var) + tf.math.squared_difference(x, target) / var) / 2
    ),
    "soft_margin_loss": _reduce(lambda tf, p, x, target: tf.math.softplus(-target * x)),
    "hinge_loss": _reduce(lambda tf, p, x, target: tf.nn.relu(p["margin"] - x * target)),
    "hinge_embedding_loss": _reduce(lambda tf, p, x, target: tf.where(target > 0, x, tf.nn.relu(p["margin"] - x))),
    "margin_ranking_loss": _reduce(lambda tf, p, x, other, target: tf.nn.relu(p["margin"] - target * (x - other))),
    "scaled_loss": _reduce(lambda tf, p, x: x * p["grad_scale"]),
    "cross_entropy": _reduce(_cross_entropy, "tensorflow.nn.sparse_softmax_cross_entropy_with_logits"),
    "nll_loss": _reduce(lambda tf, p, x, target: -_right(tf, x, target)),
    "multi_margin_loss": _reduce(_multi_margin),
    "cosine_embedding_loss": _reduce(_cosine),
    "triplet_margin_loss": _reduce(_triplet),
}
