"""Convolutions. Images have channels second, as in the catalogue, which TensorFlow takes on a CPU if oneDNN has the
kernel (float32 and bfloat16). Filters are converted before the launch to TensorFlow's layout (height, width, in, out);
their gradients have that layout too, so that no launch transposes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.tensorflow.implementations._rows import TRANSPOSED, implement
from opmark.frameworks.tensorflow.implementations.network import batch_norm
from opmark.plugin import Implementation, Params

_FORMATS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


def _filter(tf: Any, p: Params, weight: Any) -> Any:
    """Convert [out, in, ...] to [..., in, out]; for a transposed convolution [in, out, ...] to [..., out, in]."""
    return tf.transpose(weight, (*range(2, len(weight.shape)), 1, 0))


def _depthwise_filter(tf: Any, p: Params, weight: Any) -> Any:
    """Convert [channels x multiplier, 1, height, width] to [height, width, channels, multiplier]."""
    apart = tf.reshape(weight, (p["channels"], p["multiplier"], *p["kernel"]))
    return tf.transpose(apart, (2, 3, 0, 1))


def _window(p: Params) -> tuple[int, int, int]:
    return p.get("stride", 1), p.get("padding", 0), p.get("dilation", 1)


def _edges(padding: int, dims: int, last: bool) -> list[list[int]]:
    edges = [[padding, padding]] * dims
    return [[0, 0], *edges, [0, 0]] if last else [[0, 0], [0, 0], *edges]


def _is_same(p: Params) -> bool:
    """Return whether the padding is TensorFlow's SAME: as many windows as strides fit, with zeros on both sides. Its
    gradient kernels support no other padding for these images."""
    stride, padding, dilation = _window(p)
    for n, k in zip(p["image"], p["kernel"], strict=True):
        total = max((-(-n // stride) - 1) * stride + dilation * (k - 1) + 1 - n, 0)
        if total != 2 * padding:
            return False
    return True


def _pad(tf: Any, p: Params, x: Any, dims: int, last: bool = False, explicit: bool = True) -> tuple[Any, Any]:
    """Return the image and the `padding` argument. The image is padded only for functions without explicit padding."""
    padding = _window(p)[1]
    if padding == 0:
        return x, "VALID"
    if _is_same(p):
        return x, "SAME"
    edges = _edges(padding, dims, last)
    return (x, edges) if explicit and dims == 2 else (tf.pad(x, edges), "VALID")


def _convolve(tf: Any, p: Params, x: Any, weight: Any, dims: int, last: bool = False) -> Any:
    if dims == 3 and p["groups"] > 1:
        raise Unsupported("TensorFlow's 3-d convolution has no groups on a CPU")
    stride, _, dilation = _window(p)
    x, padding = _pad(tf, p, x, dims, last)
    steps: list[Any] = [stride, dilation]
    if dims > 1:
        steps = [[1, *[step] * dims, 1] if last else [1, 1, *[step] * dims] for step in steps]
    layout = (_LAST if last else _FORMATS)[dims]
    return getattr(tf.nn, f"conv{dims}d")(x, weight, steps[0], padding, data_format=layout, dilations=steps[1])


def _conv(dims: int) -> Implementation:
    def function(tf: Any, p: Params, x: Any, weight: Any) -> Any:
        return _convolve(tf, p, x, weight, dims)

    return implement(function, f"tensorflow.nn.conv{dims}d", lay={"weight": _filter})


def _conv_last(dims: int) -> Implementation:
    """Make a convolution with channels last, for types that oneDNN lacks."""
    to_last = (0, *range(2, dims + 2), 1)
    back = (0, dims + 1, *range(1, dims + 1))

    def function(tf: Any, p: Params, x: Any, weight: Any) -> Any:
        return tf.transpose(_convolve(tf, p, tf.transpose(x, to_last), weight, dims, last=True), back)

    return implement(function, name=TRANSPOSED, lay={"weight": _filter})


def _depthwise(tf: Any, p: Params, x: Any, weight: Any) -> Any:
    stride, _, dilation = _window(p)
    if stride > 1 and dilation > 1:
        raise Unsupported("TensorFlow's depthwise convolution cannot combine stride and dilation")
    dilations = [dilation, dilation] if dilation > 1 else None
    x, padding = _pad(tf, p, x, 2, explicit=dilations is None)
    return tf.nn.depthwise_conv2d(x, weight, [1, 1, stride, stride], padding, data_format="NCHW", dilations=dilations)


def _conv_transpose(dims: int) -> Implementation:
    def function(tf: Any, p: Params, x: Any, weight: Any) -> Any:
        if p["groups"] > 1 or p["dilation"] > 1:
            raise Unsupported("TensorFlow's transposed convolutions have neither groups nor dilation on a CPU")
        stride, cut, more = p["stride"], p["padding"], p["output_padding"]
        out = [(n - 1) * stride + k + more - 2 * cut for n, k in zip(p["image"], p["kernel"], strict=True)]
        padding = _sides(p, out)
        strides = stride if dims == 1 else [1, 1, *[stride] * dims]
        shape = [p["batch"], p["out_channels"], *out]
        return getattr(tf.nn, f"conv{dims}d_transpose")(x, weight, shape, strides, padding, data_format=_FORMATS[dims])

    return implement(function, f"tensorflow.nn.conv{dims}d_transpose", lay={"weight": _filter})


def _sides(p: Params, out: Sequence[int]) -> str:
    """Return SAME or VALID, the only paddings of these kernels; Unsupported if it is neither."""
    if p["padding"] == p["output_padding"] == 0:
        return "VALID"
    if not p["output_padding"] and all(-(-m // p["stride"]) == n for m, n in zip(out, p["image"], strict=True)):
        return "SAME"
    raise Unsupported("TensorFlow's CPU kernels support only the paddings SAME and VALID, and this is neither")


def _fused(normalised: bool, relu: bool) -> Callable[..., Any]:
    def function(tf: Any, p: Params, x: Any, weight: Any, **vectors: Any) -> Any:
        found = _convolve(tf, p, x, weight, 2)
        if normalised:
            norm = {"training": False, "momentum": 0.1, **p}
            found = batch_norm(tf, norm, found, *(vectors[name] for name in ("gamma", "beta", "mean", "var")))
        else:
            found = tf.nn.bias_add(found, vectors["bias"], data_format="NCHW")
        if not relu:
            return found
        return (tf.nn.relu(found[0]), *found[1:]) if isinstance(found, tuple) else tf.nn.relu(found)

    return function


# Pooling and resizing. Pools take channels second if oneDNN has a kernel (float32, bfloat16); TensorFlow's resizing
# functions take channels last only.


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
    **{f"conv{dims}d": (_conv(dims), _conv_last(dims)) for dims in (1, 2, 3)},
    "grouped_conv2d": _conv(2),
    "pointwise_conv2d": _conv(2),
    "depthwise_conv2d": implement(_depthwise, "tensorflow.nn.depthwise_conv2d", lay={"weight": _depthwise_filter}),
    **{f"conv_transpose{dims}d": _conv_transpose(dims) for dims in (1, 2, 3)},
    "conv_relu": implement(_fused(normalised=False, relu=True), lay={"weight": _filter}),
    "conv_bn": implement(_fused(normalised=True, relu=False), lay={"weight": _filter}),
    "conv_bn_relu": implement(_fused(normalised=True, relu=True), lay={"weight": _filter}),
    **{f"max_pool{dims}d": _both_layouts(_max, "max_pool", dims) for dims in (1, 2, 3)},
    **{f"avg_pool{dims}d": _both_layouts(_avg, "avg_pool", dims) for dims in (1, 2, 3)},
    **{f"sum_pool{dims}d": implement(lambda tf, p, x: _pool(tf, p, x, "avg") * _elements(p)) for dims in (1, 2, 3)},
    **{f"lp_pool{dims}d": implement(_lp) for dims in (1, 2, 3)},
    **{
        f"global_{kind}_pool{dims}d": _global(function, dims)
        for kind, function in (("max", "reduce_max"), ("avg", "reduce_mean"), ("sum", "reduce_sum"))
        for dims in (1, 2, 3)
    },
    "upsample_nearest2d": _last(_nearest),
    "upsample_bilinear2d": _last(_bilinear),
    "upsample_nearest1d": _repeat(1),
    "upsample_nearest3d": _repeat(3),
}
