"""New tensors. A traced function would compute constants only once, so these run only eagerly; random values, which
every call draws anew, run both ways."""

from __future__ import annotations

from typing import Any

from opmark.frameworks.implementation import calls
from opmark.frameworks.tensorflow.implementations._rows import implement
from opmark.plugin import Params


def _full(tf: Any, p: Params) -> Any:
    return tf.fill(p["shape"], tf.cast(p["value"], p["dtype"]))


def _arange(tf: Any, p: Params) -> Any:
    """End half a step after the last element, so that rounding cannot add or drop an element."""
    start, step, n = p["start"], p["step"], p["elements"]
    dtype = tf.as_dtype(p["dtype"])
    if dtype.is_integer:
        start, step = int(start), int(step)
        return tf.range(start, start + step * n, step, dtype=dtype)
    return tf.range(start, start + step * (n - 0.5), step, dtype=dtype)


def _linspace(tf: Any, p: Params) -> Any:
    return tf.linspace(tf.cast(p["start"], p["dtype"]), tf.cast(p["stop"], p["dtype"]), p["elements"])


def _dropout(tf: Any, p: Params, x: Any) -> Any:
    return tf.nn.dropout(x, rate=p["p"])


def _dropout2d(tf: Any, p: Params, x: Any) -> Any:
    """Drop whole channels: one decision per channel of each image."""
    return tf.nn.dropout(x, rate=p["p"], noise_shape=(*x.shape[:2], *[1] * (len(x.shape) - 2)))


def _bernoulli(tf: Any, p: Params, x: Any) -> Any:
    return tf.cast(tf.random.uniform(x.shape) < tf.cast(x, tf.float32), x.dtype)


def _exponential(tf: Any, p: Params) -> Any:
    """Draw by the inverse distribution function, from uniform values above 0."""
    return -tf.math.log1p(-tf.random.uniform(p["shape"], dtype=p["dtype"])) / p["rate"]


def _multinomial(tf: Any, p: Params, weights: Any) -> Any:
    return tf.random.categorical(tf.math.log(weights), p["draws"])


IMPLEMENTATIONS = {
    "zeros": calls("tensorflow.zeros", shape="shape", dtype="dtype"),
    "ones": calls("tensorflow.ones", shape="shape", dtype="dtype"),
    "full": implement(_full, "tensorflow.fill"),
    "zeros_like": calls("tensorflow.zeros_like", "x"),
    "ones_like": calls("tensorflow.ones_like", "x"),
    "full_like": implement(lambda tf, p, x: tf.fill(x.shape, tf.cast(p["value"], x.dtype)), "tensorflow.fill"),
    "arange": implement(_arange, "tensorflow.range"),
    "linspace": implement(_linspace, "tensorflow.linspace"),
    "logspace": implement(lambda tf, p: tf.pow(tf.cast(10, p["dtype"]), _linspace(tf, p))),
    "eye": calls("tensorflow.eye", num_rows="rows", num_columns="columns", dtype="dtype"),
    "dropout": implement(_dropout, "tensorflow.nn.dropout"),
    "dropout2d": implement(_dropout2d, "tensorflow.nn.dropout"),
    "softmax_dropout": implement(lambda tf, p, x: _dropout(tf, p, tf.nn.softmax(x))),
    "bias_dropout_add": implement(lambda tf, p, x, bias, residual: residual + _dropout(tf, p, x + bias)),
    "random_uniform": calls("tensorflow.random.uniform", shape="shape", minval="low", maxval="high", dtype="dtype"),
    "random_normal": calls("tensorflow.random.normal", shape="shape", mean="mean", stddev="std", dtype="dtype"),
    "random_randint": calls("tensorflow.random.uniform", shape="shape", minval="low", maxval="high", dtype="dtype"),
    "random_exponential": implement(_exponential),
    "random_poisson": calls("tensorflow.random.poisson", shape="shape", lam="rate", dtype="dtype"),
    "random_gamma": implement(
        lambda tf, p: tf.random.gamma(p["shape"], p["alpha"], 1 / p["scale"], dtype=p["dtype"]),
        "tensorflow.random.gamma",
    ),
    "bernoulli": implement(_bernoulli),
    "multinomial": implement(_multinomial, "tensorflow.random.categorical"),
    "shuffle": calls("tensorflow.random.shuffle", "x"),
    "randperm": implement(lambda tf, p: tf.random.shuffle(tf.range(p["elements"], dtype=p["dtype"]))),
}
