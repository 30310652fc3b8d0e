"""Reshaping, moving, slicing, joining, padding, triangles. Views of torch are views of TensorFlow only if the order in
memory stays (reshape and the like); everything else is a copy."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.implementation import calls
from opmark.frameworks.tensorflow.implementations._rows import implement
from opmark.plugin import Params


def _transpose(tf: Any, p: Params, x: Any) -> Any:
    return tf.transpose(x, p["axes"] or None)


def _swap(tf: Any, p: Params, x: Any) -> Any:
    axes = list(range(len(x.shape)))
    one, other = p["axis1"], p["axis2"]
    axes[one], axes[other] = axes[other], axes[one]
    return tf.transpose(x, axes)


def _at(x: Any, axis: int, place: Any) -> Any:
    where = (*[slice(None)] * (axis % len(x.shape)), place)
    return x[where]


def _narrow(tf: Any, p: Params, x: Any) -> Any:
    return _at(x, p["axis"], slice(p["start"], p["start"] + p["length"]))


def _tile(tf: Any, p: Params, x: Any) -> Any:
    """Tile; missing repetitions in front are 1, and additional ones make new axes."""
    rank = max(len(p["reps"]), len(x.shape))
    x = tf.reshape(x, [1] * (rank - len(x.shape)) + list(x.shape))
    return tf.tile(x, [1] * (rank - len(p["reps"])) + list(p["reps"]))


def _shuffle(tf: Any, p: Params, x: Any) -> Any:
    n, channels, *image = x.shape
    apart = tf.reshape(x, (n, p["groups"], channels // p["groups"], *image))
    return tf.reshape(tf.transpose(apart, (0, 2, 1, *range(3, len(apart.shape)))), x.shape)


def _to_space(tf: Any, p: Params, x: Any) -> Any:
    """Use reshape and transpose, as TensorFlow's own function needs channels last on a CPU and has one order only."""
    (n, c, h, w), b = x.shape, p["block"]
    left = c // (b * b)
    crd = p["order"] == "crd"
    apart = tf.reshape(x, (n, left, b, b, h, w) if crd else (n, b, b, left, h, w))
    return tf.reshape(tf.transpose(apart, (0, 1, 4, 2, 5, 3) if crd else (0, 3, 4, 1, 5, 2)), (n, left, h * b, w * b))


def _to_depth(tf: Any, p: Params, x: Any) -> Any:
    (n, c, h, w), b = x.shape, p["block"]
    apart = tf.reshape(x, (n, c, h // b, b, w // b, b))
    axes = (0, 1, 3, 5, 2, 4) if p["order"] == "crd" else (0, 3, 5, 1, 2, 4)
    return tf.reshape(tf.transpose(apart, axes), (n, c * b * b, h // b, w // b))


def _pad(tf: Any, p: Params, x: Any) -> Any:
    if p["mode"] not in ("constant", "reflect"):
        raise Unsupported(f"tf.pad has no mode for `{p['mode']}`")
    padded = list(map(list, zip(p["before"], p["after"], strict=True)))
    widths = [[0, 0]] * (len(x.shape) - len(padded)) + padded
    if p["mode"] == "reflect":
        return tf.pad(x, widths, mode="REFLECT")
    return tf.pad(x, widths, constant_values=tf.cast(p["value"], x.dtype))


def _tril(tf: Any, p: Params, x: Any) -> Any:
    return tf.linalg.band_part(x, -1, p["k"]) if p["k"] >= 0 else tf.experimental.numpy.tril(x, p["k"])


def _triu(tf: Any, p: Params, x: Any) -> Any:
    return tf.linalg.band_part(x, -p["k"], -1) if p["k"] <= 0 else tf.experimental.numpy.triu(x, p["k"])


def _triangle(p: Params) -> Any:
    """Return the flat indices of a triangle in a matrix."""
    import numpy as np

    rows, columns = (np.triu_indices if p["upper"] else np.tril_indices)(p["n"])
    return rows * p["n"] + columns


def _extract(tf: Any, p: Params, x: Any) -> Any:
    return tf.gather(tf.reshape(x, (p["batch"], -1)), _triangle(p), axis=1)


def _make(tf: Any, p: Params, x: Any) -> Any:
    """Gather the elements; places outside gather a zero that is put in front."""
    import numpy as np

    source = np.zeros(p["n"] ** 2, np.int64)
    source[_triangle(p)] = np.arange(1, x.shape[1] + 1)
    fetched = tf.gather(tf.pad(x, [[0, 0], [1, 0]]), source, axis=1)
    return tf.reshape(fetched, (p["batch"], p["n"], p["n"]))


def _frames(tf: Any, p: Params, x: Any) -> Any:
    axis, rank = p["axis"] % len(x.shape), len(x.shape)
    found = tf.signal.frame(x, p["length"], p["step"], axis=axis)
    return found if axis == rank - 1 else tf.experimental.numpy.moveaxis(found, axis + 1, -1)


def _chunk(tf: Any, p: Params, x: Any) -> Any:
    n = x.shape[p["axis"]]
    each = -(-n // p["parts"])
    return tuple(tf.split(x, [min(each, n - start) for start in range(0, n, each)], axis=p["axis"]))


def _split_copy(tf: Any, p: Params, x: Any) -> Any:
    if prod(x.shape[: p["axis"] % len(x.shape)]) == 1:
        raise Unsupported("TensorFlow does not copy when it splits along the first axis")
    return tuple(tf.split(x, p["parts"], axis=p["axis"]))


def _block_diag(tf: Any, p: Params, **xs: Any) -> Any:
    """Pad each block with zeros on both sides, then stack them."""
    width, start, rows = sum(x.shape[1] for x in xs.values()), 0, []
    for x in xs.values():
        rows.append(tf.pad(x, [[0, 0], [start, width - start - x.shape[1]]]))
        start += x.shape[1]
    return tf.concat(rows, axis=0)


IMPLEMENTATIONS = {
    "reshape": calls("tensorflow.reshape", "x", shape="target"),
    "flatten": implement(lambda tf, p, x: tf.reshape(x, (x.shape[0], -1)), "tensorflow.reshape"),
    "expand_dims": calls("tensorflow.expand_dims", "x", axis="axis"),
    "squeeze": calls("tensorflow.squeeze", "x", axis="axis"),
    "transpose": implement(_transpose, "tensorflow.transpose"),
    "permute": implement(_transpose, "tensorflow.transpose"),
    "swapaxes": implement(_swap, "tensorflow.transpose"),
    "flip": implement(lambda tf, p, x: tf.reverse(x, [p["axis"]]), "tensorflow.reverse"),
    "roll": calls("tensorflow.roll", "x", shift="shift", axis="axis"),
    "rot90": implement(lambda tf, p, x: tf.experimental.numpy.rot90(x, p["k"], axes=(-2, -1))),
    "tile": implement(_tile, "tensorflow.tile"),
    "repeat": calls("tensorflow.repeat", "x", repeats="repeats", axis="axis"),
    "broadcast_to": calls("tensorflow.broadcast_to", "x", shape="target"),
    "broadcast_copy": calls("tensorflow.broadcast_to", "x", shape="target"),
    "channel_shuffle": implement(_shuffle),
    "depth_to_space": implement(_to_space),
    "space_to_depth": implement(_to_depth),
    "diag": calls("tensorflow.linalg.diag_part", "x", k="k"),
    "diagonal": calls("tensorflow.linalg.diag_part", "x", k="k"),
    "diag_embed": calls("tensorflow.linalg.diag", "x", k="k"),
    "tril": implement(_tril, "tensorflow.linalg.band_part"),
    "triu": implement(_triu, "tensorflow.linalg.band_part"),
    "extract_triangle": implement(_extract),
    "make_triangle": implement(_make),
    "slice": implement(lambda tf, p, x: _at(x, p["axis"], slice(p["begin"], p["end"], p["step"]))),
    "narrow": implement(_narrow),
    "select": implement(lambda tf, p, x: _at(x, p["axis"], p["index"])),
    "unfold": implement(_frames, "tensorflow.signal.frame"),
    "pad": implement(_pad, "tensorflow.pad"),
    "shape_array": implement(lambda tf, p, x: tf.shape(x, out_type=tf.int64), "tensorflow.shape"),
    "size_array": implement(lambda tf, p, x: tf.reshape(tf.size(x, out_type=tf.int64), [1]), "tensorflow.size"),
    "concat": implement(lambda tf, p, **xs: tf.concat(list(xs.values()), axis=p["axis"]), "tensorflow.concat"),
    "stack": implement(lambda tf, p, **xs: tf.stack(list(xs.values()), axis=p["axis"]), "tensorflow.stack"),
    "split": implement(lambda tf, p, x: tuple(tf.split(x, p["parts"], axis=p["axis"])), "tensorflow.split"),
    "split_copy": implement(_split_copy, "tensorflow.split"),
    "chunk": implement(_chunk, "tensorflow.split"),
    "unbind": implement(lambda tf, p, x: tuple(tf.unstack(x, axis=p["axis"])), "tensorflow.unstack"),
    "meshgrid": implement(lambda tf, p, x, y: tuple(tf.meshgrid(x, y, indexing="ij")), "tensorflow.meshgrid"),
    "block_diag": implement(_block_diag),
}
