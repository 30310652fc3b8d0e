"""Operators along an axis: sums, extrema and their indices, scans, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.implementation import calls
from opmark.frameworks.tensorflow.implementations._rows import implement
from opmark.plugin import Implementation, Params


def _reduction(function: str, prepared: Callable[[Any, Any], Any] | None = None) -> Implementation:
    """Make an implementation that calls `tf.reduce_...` on `prepared(tf, x)`."""

    def call(tf: Any, p: Params, x: Any) -> Any:
        values = prepared(tf, x) if prepared else x
        return getattr(tf.math, function)(values, axis=p["axis"], keepdims=p["keepdims"])

    return implement(call, f"tensorflow.math.{function}" if prepared is None else "")


def _wide(tf: Any, x: Any) -> Any:
    """Convert integers to 64 bits, in which they are summed."""
    return tf.cast(x, tf.int64) if x.dtype.is_integer else x


def _replace_nan(with_: float) -> Callable[[Any, Any], Any]:
    return lambda tf, x: tf.where(tf.math.is_nan(x), tf.cast(with_, x.dtype), x)


def _nanmean(tf: Any, p: Params, x: Any) -> Any:
    along = {"axis": p["axis"], "keepdims": p["keepdims"]}
    there = tf.math.logical_not(tf.math.is_nan(x))
    return tf.reduce_sum(_replace_nan(0.0)(tf, x), **along) / tf.reduce_sum(tf.cast(there, x.dtype), **along)


def _variance(tf: Any, p: Params, x: Any) -> Any:
    """Correct the divisor: TensorFlow divides by the length."""
    found = tf.math.reduce_variance(x, axis=p["axis"], keepdims=p["keepdims"])
    n = x.shape[p["axis"]]
    return found * (n / (n - p["correction"])) if p["correction"] else found


def _index_of(function: str) -> Callable[..., Any]:
    def call(tf: Any, p: Params, x: Any) -> Any:
        found = getattr(tf.math, function)(x, axis=p["axis"], output_type=tf.int64)
        return tf.expand_dims(found, p["axis"]) if p["keepdims"] else found

    return call


def _with_index(value: str, place: str) -> Implementation:
    def call(tf: Any, p: Params, x: Any) -> Any:
        found = getattr(tf.math, value)(x, axis=p["axis"], keepdims=p["keepdims"])
        return found, _index_of(place)(tf, p, x)

    return implement(call)


def _last(tf: Any, p: Params, x: Any) -> Any:
    """Move the axis to the end, where TensorFlow's selecting and sorting functions want it."""
    rank = len(x.shape)
    return x if p["axis"] % rank == rank - 1 else tf.experimental.numpy.moveaxis(x, p["axis"], -1)


def _back(tf: Any, p: Params, x: Any, rank: int) -> Any:
    return x if p["axis"] % rank == rank - 1 else tf.experimental.numpy.moveaxis(x, -1, p["axis"])


def _kth(tf: Any, p: Params, x: Any, k: int) -> Any:
    """Find the k-th smallest as the last of the k largest of the negated values."""
    values, places = tf.math.top_k(-_last(tf, p, x), k=k)
    found = -values[..., k - 1], tf.cast(places[..., k - 1], tf.int64)
    return tuple(tf.expand_dims(each, p["axis"]) for each in found) if p["keepdims"] else found


def _sort(tf: Any, p: Params, x: Any) -> Any:
    """Gather values by argsort's indices, as TensorFlow returns either values or indices."""
    places = _argsort(tf, p, x)
    axis, rank = p["axis"] % len(x.shape), len(x.shape)
    values = tf.gather(_last(tf, p, x), _last(tf, {"axis": axis}, places), axis=-1, batch_dims=rank - 1)
    return _back(tf, p, values, rank), places


def _argsort(tf: Any, p: Params, x: Any) -> Any:
    direction = "DESCENDING" if p["descending"] else "ASCENDING"
    return tf.cast(tf.argsort(x, axis=p["axis"], direction=direction), tf.int64)


def _topk(tf: Any, p: Params, x: Any) -> Any:
    """Cast the indices, as TensorFlow's 64-bit indices come without a gradient."""
    values, places = tf.math.top_k(x if p["largest"] else -x, k=p["k"])
    return values if p["largest"] else -values, tf.cast(places, tf.int64)


def _diff(tf: Any, p: Params, x: Any) -> Any:
    others = [slice(None)] * (p["axis"] % len(x.shape))
    behind, before = (*others, slice(1, None)), (*others, slice(None, -1))
    return x[behind] - x[before]


def _logcumsumexp(tf: Any, p: Params, x: Any) -> Any:
    if x.dtype.size < 4:
        raise Unsupported("TensorFlow sums in 16 bits here, which loses all digits")
    return tf.math.cumulative_logsumexp(x, axis=p["axis"])


def _multi_sum_sq(tf: Any, p: Params, **xs: Any) -> Any:
    wide = (tf.cast(x, tf.float32) if x.dtype.size < 4 else x for x in xs.values())
    return tf.stack([tf.reduce_sum(tf.square(x)) for x in wide])


def _all_finite(tf: Any, p: Params, **xs: Any) -> Any:
    each = [tf.reduce_all(tf.math.is_finite(x)) for x in xs.values()]
    return each[0] if len(each) == 1 else tf.reduce_all(tf.stack(each))


def _moments(tf: Any, p: Params, x: Any) -> Any:
    rank = len(x.shape)
    mean, variance = tf.nn.moments(x, axes=list(range(rank - p["axes"], rank)) if p["axes"] else list(range(rank)))
    return variance, mean


IMPLEMENTATIONS = {
    "reduce_sum": implement(
        lambda tf, p, x: tf.reduce_sum(_wide(tf, x), axis=p["axis"], keepdims=p["keepdims"]),
        "tensorflow.math.reduce_sum",
    ),
    "reduce_mean": _reduction("reduce_mean"),
    "prod": _reduction("reduce_prod"),
    "logsumexp": _reduction("reduce_logsumexp"),
    "amax": _reduction("reduce_max"),
    "amin": _reduction("reduce_min"),
    "any": _reduction("reduce_any", lambda tf, x: tf.cast(x, tf.bool)),
    "all": _reduction("reduce_all", lambda tf, x: tf.cast(x, tf.bool)),
    "nansum": _reduction("reduce_sum", _replace_nan(0.0)),
    "nanprod": _reduction("reduce_prod", _replace_nan(1.0)),
    "nanmean": implement(_nanmean),
    "var": implement(_variance, "tensorflow.math.reduce_variance"),
    "std": implement(lambda tf, p, x: tf.sqrt(_variance(tf, p, x))),
    "norm": calls("tensorflow.norm", "x", ord="ord", axis="axis", keepdims="keepdims"),
    "reduce_max": _with_index("reduce_max", "argmax"),
    "reduce_min": _with_index("reduce_min", "argmin"),
    "argmax": implement(_index_of("argmax"), "tensorflow.math.argmax"),
    "argmin": implement(_index_of("argmin"), "tensorflow.math.argmin"),
    "count_nonzero": calls("tensorflow.math.count_nonzero", "x", axis="axis"),
    "all_finite": implement(_all_finite),
    "multi_all_finite": implement(_all_finite),
    "multi_sum_sq": implement(_multi_sum_sq),
    "moments": implement(_moments, "tensorflow.nn.moments"),
    "trace": calls("tensorflow.linalg.trace", "x"),
    "sumlogdiag": implement(lambda tf, p, x: tf.reduce_sum(tf.math.log(tf.linalg.diag_part(x)), axis=-1)),
    "median": implement(lambda tf, p, x: _kth(tf, p, x, (x.shape[p["axis"]] - 1) // 2 + 1)),
    "kthvalue": implement(lambda tf, p, x: _kth(tf, p, x, p["k"])),
    "sort": implement(_sort),
    "argsort": implement(_argsort, "tensorflow.argsort"),
    "topk": implement(_topk, "tensorflow.math.top_k"),
    "cumsum": calls("tensorflow.math.cumsum", "x", axis="axis"),
    "cumprod": calls("tensorflow.math.cumprod", "x", axis="axis"),
    "logcumsumexp": implement(_logcumsumexp, "tensorflow.math.cumulative_logsumexp"),
    "diff": implement(_diff),
}
