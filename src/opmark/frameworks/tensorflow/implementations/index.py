"""Gather and scatter, embeddings, masks, searches, sequences, 8-bit numbers."""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.implementation import calls
from opmark.frameworks.tensorflow.implementations._rows import implement
from opmark.plugin import Params


def _along(tf: Any, p: Params, x: Any, index: Any) -> Any:
    return tf.experimental.numpy.take_along_axis(x, index, p["axis"])


def _pick(tf: Any, p: Params, x: Any, index: Any) -> Any:
    axis, rank = p["axis"] % len(x.shape), len(x.shape)
    if axis == rank - 1:
        found = tf.gather(x, index, axis=axis, batch_dims=rank - 1)
        return tf.expand_dims(found, axis) if p["keepdims"] else found
    found = _along(tf, p, x, tf.expand_dims(index, axis))
    return found if p["keepdims"] else tf.squeeze(found, axis)


def _rows(function: str) -> Any:
    """Scatter along the first axis, as TensorFlow does; another axis is moved there and back."""

    def call(tf: Any, p: Params, x: Any, index: Any, src: Any = None) -> Any:
        axis = p.get("axis", 0) % len(x.shape)
        if src is None:
            sizes = [index.shape[0] if i == axis else n for i, n in enumerate(x.shape)]
            src = tf.fill(sizes, tf.cast(p["value"], x.dtype))
        scatter = getattr(tf, function)
        if axis == 0:
            return scatter(x, index[:, None], src)
        move = tf.experimental.numpy.moveaxis
        return move(scatter(move(x, axis, 0), index[:, None], move(src, axis, 0)), 0, axis)

    return implement(call, f"tensorflow.{function}")


def _elements(function: str) -> Any:
    """Scatter elements with one index each along one axis; the coordinates of the other axes are added."""

    def call(tf: Any, p: Params, x: Any, index: Any, src: Any) -> Any:
        import numpy as np

        places = np.indices(tuple(index.shape))
        axis = p["axis"] % len(x.shape)
        coordinates = [index if i == axis else tf.constant(place, index.dtype) for i, place in enumerate(places)]
        return getattr(tf, function)(x, tf.stack(coordinates, axis=-1), src)

    return implement(call, f"tensorflow.{function}")


def _ravel(tf: Any, p: Params, index: Any) -> Any:
    import numpy as np

    steps = np.cumprod([1, *p["shape"][:0:-1]])[::-1].reshape(-1, 1)
    return tf.reduce_sum(index * tf.constant(steps, index.dtype), axis=0)


def _bags(tf: Any, p: Params, weight: Any, indices: Any, offsets: Any, per_sample_weights: Any = None) -> Any:
    rows = tf.gather(weight, indices)
    if per_sample_weights is not None:
        rows *= per_sample_weights[:, None]
    bags = tf.searchsorted(offsets, tf.range(indices.shape[0], dtype=offsets.dtype), side="right") - 1
    return getattr(tf.math, f"unsorted_segment_{p['mode']}")(rows, bags, num_segments=p["bags"])


def _unique(tf: Any, p: Params, x: Any) -> Any:
    if p["inverse"] or p["counts"]:
        raise Unsupported("TensorFlow returns inverse and counts only in the order of appearance")
    return tf.sort(tf.unique(tf.reshape(x, [-1]))[0])


def _histogram(tf: Any, p: Params, x: Any) -> Any:
    return tf.cast(tf.histogram_fixed_width(x, tf.constant([-1.0, 1.0], x.dtype), nbins=p["bins"]), x.dtype)


def _bincount(tf: Any, p: Params, x: Any) -> Any:
    return tf.math.bincount(x, minlength=p["bins"], maxlength=p["bins"], dtype=tf.int64)


def _search(tf: Any, p: Params, table: Any, values: Any) -> Any:
    return tf.searchsorted(table, values, side="right" if p["right"] else "left", out_type=tf.int64)


def _sequence_mask(tf: Any, p: Params, x: Any, lengths: Any) -> Any:
    within = tf.transpose(tf.sequence_mask(lengths, p["steps"]))
    return tf.where(within[:, :, None], x, tf.cast(p["value"], x.dtype))


def _sequence_last(tf: Any, p: Params, x: Any, lengths: Any) -> Any:
    each = tf.range(p["batch"], dtype=lengths.dtype)
    return tf.gather_nd(x, tf.stack([lengths - 1, each], axis=1))


def _require_int8(p: Params) -> None:
    if p.get("quantized_dtype", "int8") != "int8":
        raise Unsupported("TensorFlow has no kernels for 8-bit floats")


def _quantize(tf: Any, p: Params, x: Any, scale: Any) -> Any:
    _require_int8(p)
    numbers = tf.round(tf.cast(x, tf.float32) / scale) + p["zero_point"]
    return tf.cast(tf.clip_by_value(numbers, -128.0, 127.0), tf.int8)


def _dequantize(tf: Any, p: Params, x: Any, scale: Any) -> Any:
    _require_int8(p)
    wide = tf.cast(x, tf.float32)
    return tf.cast((wide - p["zero_point"] if p["zero_point"] else wide) * scale, p["dtype"])


IMPLEMENTATIONS = {
    "embedding": calls("tensorflow.nn.embedding_lookup", "weight", "indices"),
    "hash_table": calls("tensorflow.nn.embedding_lookup", "table", "indices"),
    **{name: calls("tensorflow.gather", "x", "index", axis="axis")
       for name in ("gather_rows", "index_select", "take")},
    "take_flat": implement(lambda tf, p, x, index: tf.gather(tf.reshape(x, [-1]), index), "tensorflow.gather"),
    "gather": implement(_along),
    "take_along_axis": implement(_along),
    "gather_nd": implement(lambda tf, p, x, index: tf.gather_nd(x, tf.transpose(index)), "tensorflow.gather_nd"),
    "pick": implement(_pick),
    "index_add": _rows("tensor_scatter_nd_add"),
    "index_fill": _rows("tensor_scatter_nd_update"),
    "index_put": _rows("tensor_scatter_nd_update"),
    "scatter": _elements("tensor_scatter_nd_update"),
    "scatter_add": _elements("tensor_scatter_nd_add"),
    "where": calls("tensorflow.where", "condition", "x", "y"),
    "masked_fill": implement(
        lambda tf, p, x, mask: tf.where(mask, tf.cast(p["value"], x.dtype), x), "tensorflow.where"
    ),
    "masked_select": calls("tensorflow.boolean_mask", "x", "mask"),
    "one_hot": implement(lambda tf, p, index: tf.one_hot(index, p["depth"], dtype=tf.int64), "tensorflow.one_hot"),
    "ravel_multi_index": implement(_ravel),
    "unravel_index": implement(
        lambda tf, p, index: tuple(tf.unstack(tf.unravel_index(index, tf.constant(p["shape"], index.dtype)))),
        "tensorflow.unravel_index",
    ),
    "embedding_bag": implement(_bags),
    "bincount": implement(_bincount, "tensorflow.math.bincount"),
    "histogram": implement(_histogram, "tensorflow.histogram_fixed_width"),
    "isin": implement(lambda tf, p, x, candidates: tf.reduce_any(tf.equal(x[..., None], candidates), axis=-1)),
    "nonzero": implement(lambda tf, p, x: tf.where(x), "tensorflow.where"),
    "searchsorted": implement(_search, "tensorflow.searchsorted"),
    "unique": implement(_unique, "tensorflow.unique"),
    "sequence_mask": implement(_sequence_mask, "tensorflow.sequence_mask"),
    "sequence_last": implement(_sequence_last),
    "sequence_reverse": implement(
        lambda tf, p, x, lengths: tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1),
        "tensorflow.reverse_sequence",
    ),
    "quantize": implement(_quantize),
    "dequantize": implement(_dequantize),
}  # fmt: skip
