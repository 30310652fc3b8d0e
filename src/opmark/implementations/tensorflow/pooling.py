"""Pooling and resizing. Pools take channels second if oneDNN has a kernel (float32, bfloat16); TensorFlow's resizing
functions take channels last only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.errors import Unsupported
from opmark.implementations.tensorflow._rows import TRANSPOSED, implement
from opmark.schema import Implementation, Params

_FORMATS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


_LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


def _pool(tf: Any, p: Params, x: Any, kind: str, outside: float = 0.0, last: bool = False) -> Any:
    """Pad the image first, as TensorFlow's pools have no explicit padding."""
    dims = len(p["kernel"])
    if p.get("padding"):
        edges = [[p["padding"], p["padding"]]] * dims
        widths = [[0, 0], *edges, [0, 0]] if last else [[0, 0], [0, 0], *edges]
        x = tf.pad(x, widths, constant_values=tf.cast(outside, x.dtype))
    layout = (_LAST if last else _FORMATS)[dims]
    if p.get("dilation", 1) > 1:
        if p["stride"] > 1:
            raise Unsupported("TensorFlow's pools cannot combine stride and dilation")
        dilations = [p["dilation"]] * dims
        return tf.nn.pool(x, p["kernel"], kind.upper(), padding="VALID", dilations=dilations, data_format=layout)
    return getattr(tf.nn, f"{kind}_pool{dims}d")(x, list(p["kernel"]), p["stride"], "VALID", data_format=layout)


def _max(tf: Any, p: Params, x: Any, last: bool = False) -> Any:
    return _pool(tf, p, x, "max", float("-inf"), last)


def _avg(tf: Any, p: Params, x: Any, last: bool = False) -> Any:
    if p["padding"] and not p["count_include_pad"]:
        raise Unsupported("TensorFlow excludes padding from a mean only for SAME padding")
    return _pool(tf, p, x, "avg", last=last)


def _both_layouts(function: Callable[..., Any], stem: str, dims: int) -> tuple[Implementation, Implementation]:
    """Make two implementations, with channels second and last; the latter is for types and gradients that oneDNN
    lacks."""
    to_last, back = (0, *range(2, dims + 2), 1), (0, dims + 1, *range(1, dims + 1))

    def transposing(tf: Any, p: Params, x: Any) -> Any:
        return tf.transpose(function(tf, p, tf.transpose(x, to_last), last=True), back)

    return implement(function, f"tensorflow.nn.{stem}{dims}d"), implement(transposing, name=TRANSPOSED)


def _elements(p: Params) -> int:
    n = 1
    for k in p["kernel"]:
        n *= int(k)
    return n


def _lp(tf: Any, p: Params, x: Any) -> Any:
    """Compute the root of the mean of powers times their number."""
    power = p["norm_type"]
    raised = tf.square(x) if power == 2 else tf.pow(tf.abs(x), power)
    total = _pool(tf, p, raised, "avg") * _elements(p)
    return tf.sqrt(total) if power == 2 else tf.pow(total, 1 / power)


def _global(function: str, dims: int) -> Implementation:
    axes = list(range(2, dims + 2))

    def call(tf: Any, p: Params, x: Any) -> Any:
        return getattr(tf.math, function)(x, axis=axes, keepdims=True)

    return implement(call, f"tensorflow.math.{function}")


def _last(resize: Callable[..., Any]) -> Implementation:
    def function(tf: Any, p: Params, x: Any) -> Any:
        found = resize(tf, p, tf.transpose(x, (0, 2, 3, 1)))
        return tf.cast(tf.transpose(found, (0, 3, 1, 2)), x.dtype)

    return implement(function, "tensorflow.image.resize", name=TRANSPOSED)


def _nearest(tf: Any, p: Params, x: Any) -> Any:
    return tf.image.resize(x, p["out"], "nearest")


def _bilinear(tf: Any, p: Params, x: Any) -> Any:
    """Use the functions of TensorFlow 1 for aligned corners, the only ones that have them."""
    if p["dtype"] == "float64":
        raise Unsupported("TensorFlow interpolates in float32, which is too imprecise for float64")
    if p["align_corners"]:
        return tf.compat.v1.image.resize_bilinear(x, p["out"], align_corners=True)
    return tf.image.resize(x, p["out"], "bilinear")


def _repeat(dims: int) -> Implementation:
    """Repeat each element, as TensorFlow has no nearest neighbours over one or three axes."""

    def function(tf: Any, p: Params, x: Any) -> Any:
        for axis, (n, out) in enumerate(zip(p["image"], p["out"], strict=True), 2):
            x = tf.repeat(x, out // n, axis=axis)
        return x

    return implement(function)


IMPLEMENTATIONS = {
    **{f"max_pool{dims}d": _both_layouts(_max, "max_pool", dims) for dims in (1, 2, 3)},
    **{f"avg_pool{dims}d": _both_layouts(_avg, "avg_pool", dims) for dims in (1, 2, 3)},
    **{f"sum_pool{dims}d": implement(lambda tf, p, x: _pool(tf, p, x, "avg") * _elements(p)) for dims in (1, 2, 3)},
    **{f"lp_pool{dims}d": implement(_lp) for dims in (1, 2, 3)},
    **{f"global_{kind}_pool{dims}d": _global(function, dims)
       for kind, function in (("max", "reduce_max"), ("avg", "reduce_mean"), ("sum", "reduce_sum"))
       for dims in (1, 2, 3)},
    "upsample_nearest2d": _last(_nearest),
    "upsample_bilinear2d": _last(_bilinear),
    "upsample_nearest1d": _repeat(1),
    "upsample_nearest3d": _repeat(3),
}  # fmt: skip
