"""Windows over images: convolutions, pools, im2col; resizing and sampling of images."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.onnx.implementations._graph import GraphBuilder, graph, node
from opmark.frameworks.onnx.implementations.network import batch_norm
from opmark.plugin import Implementation, Params


def _sliding(p: Params, dims: int) -> dict[str, Any]:
    """Return ONNX's attributes of a sliding window."""
    moves = {"strides": [p.get("stride", 1)] * dims, "pads": [p.get("padding", 0)] * 2 * dims}
    return {**moves, "dilations": [p["dilation"]] * dims} if "dilation" in p else moves


def _conv(dims: int, groups: Any = lambda p: p.get("groups", 1)) -> Implementation:
    def draw(g: GraphBuilder, p: Params, x: str, weight: str) -> Any:
        return g.Conv(x, weight, group=groups(p), **_sliding(p, dims))

    return graph(draw, path="onnx.Conv")


def _conv_transpose(dims: int) -> Implementation:
    def draw(g: GraphBuilder, p: Params, x: str, weight: str) -> Any:
        more = [p["output_padding"]] * dims
        return g.ConvTranspose(x, weight, group=p["groups"], output_padding=more, **_sliding(p, dims))

    return graph(draw, path="onnx.ConvTranspose")


def _conv_relu(g: GraphBuilder, p: Params, x: str, weight: str, bias: str) -> Any:
    return g.Relu(g.Conv(x, weight, bias, **_sliding(p, 2)))


def _conv_bn(g: GraphBuilder, p: Params, x: str, weight: str, gamma: str, beta: str, mean: str, var: str) -> Any:
    image = ((n + 2 * p["padding"] - k) // p["stride"] + 1 for n, k in zip(p["image"], p["kernel"], strict=True))
    norm = {"training": False, "momentum": 0.1, **p, "shape": [p["batch"], p["out_channels"], *image]}
    return batch_norm(g, norm, g.Conv(x, weight, **_sliding(p, 2)), gamma, beta, mean, var)


def _conv_bn_relu(g: GraphBuilder, p: Params, **names: str) -> Any:
    found = _conv_bn(g, p, **names)
    return (g.Relu(found[0]), *found[1:]) if p.get("training") else g.Relu(found)


def _max_pool(dims: int) -> Implementation:
    draw = lambda g, p, x: g.MaxPool(x, kernel_shape=p["kernel"], **_sliding(p, dims))  # noqa: E731
    return graph(draw, path="onnx.MaxPool")


def _avg_pool(dims: int) -> Implementation:
    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        counted = int(p["count_include_pad"])
        return g.AveragePool(x, kernel_shape=p["kernel"], count_include_pad=counted, **_sliding(p, dims))

    return graph(draw, path="onnx.AveragePool")


def _sum_pool(dims: int) -> Implementation:
    """Compute the mean times its number of terms."""

    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        mean = g.AveragePool(x, kernel_shape=p["kernel"], count_include_pad=1, **_sliding(p, dims))
        return g.Mul(mean, float(prod(p["kernel"])))

    return graph(draw)


def _lp_pool(dims: int) -> Implementation:
    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        power = int(p["norm_type"])
        if power != p["norm_type"]:
            raise Unsupported(f"ONNX's LpPool takes only an integer p (got norm_type={p['norm_type']})")
        return g.LpPool(x, kernel_shape=p["kernel"], p=power, **_sliding(p, dims))

    return graph(draw, path="onnx.LpPool")


def _global_sum(dims: int) -> Implementation:
    axes = list(range(2, 2 + dims))
    return graph(lambda g, p, x: g.ReduceSum(x, axes, keepdims=1), path="onnx.ReduceSum")


def _adaptive(reduce: str, pool: str, dims: int) -> Implementation:
    """Use one pool if windows are equal; else pool each window, axis by axis."""

    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        pairs = list(zip(p["image"], p["out"], strict=True))
        if all(image % out == 0 for image, out in pairs):
            kernel = [image // out for image, out in pairs]
            return getattr(g, pool)(x, kernel_shape=kernel, strides=kernel)
        for axis, (image, out) in enumerate(pairs, 2):
            spans = [(i * image // out, -(-(i + 1) * image // out)) for i in range(out)]
            cut = [g.Slice(x, [start], [end], [axis]) for start, end in spans]
            x = g.Concat(*(getattr(g, reduce)(part, [axis], keepdims=1) for part in cut), axis=axis)
        return x

    return graph(draw)


def _max_unpool(g: GraphBuilder, p: Params, x: str, indices: str) -> Any:
    """Scatter values image by image: ONNX's own node counts indices over all images, the catalogue over one."""
    planes, size = p["batch"] * p["channels"], prod(p["image"])
    zeros = g.Expand(g.constant(0.0, p["dtype"]), [planes, size])
    flat = [g.Reshape(y, [planes, -1]) for y in (indices, x)]
    return g.Reshape(g.ScatterElements(zeros, *flat, axis=1), [p["batch"], p["channels"], *p["image"]])


def _im2col(g: GraphBuilder, p: Params, x: str) -> Any:
    """Gather rows of windows, then their columns, as exporters write it."""
    pad, stride, dilation = p["padding"], p["stride"], p["dilation"]
    x = g.Pad(x, [0, 0, pad, pad, 0, 0, pad, pad]) if pad else x
    for axis, image, kernel in zip((2, 4), p["image"], p["kernel"], strict=True):
        windows = (image + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
        places = [[dilation * i + stride * j for j in range(windows)] for i in range(kernel)]
        x = g.Gather(x, places, axis=axis)
    ordered = g.Transpose(x, perm=[0, 1, 2, 4, 3, 5])
    return g.Reshape(ordered, [p["batch"], p["channels"] * prod(p["kernel"]), -1])


def _col2im(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.Col2Im(x, p["image"], p["kernel"], **_sliding(p, 2))


def _resize(mode: str) -> Implementation:
    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        sizes = [p["batch"], p["channels"], *p["out"]]
        if mode == "nearest":
            how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        else:
            how = {"coordinate_transformation_mode": "align_corners" if p["align_corners"] else "half_pixel"}
        return g.Resize(x, "", "", sizes, mode=mode, **how)

    return graph(draw, path="onnx.Resize")


def _half(n: int, align_corners: bool) -> float:
    return (n - 1) / 2 if align_corners else n / 2


def _affine_grid(g: GraphBuilder, p: Params, theta: str) -> Any:
    """Multiply the points of an image, as rows of a matrix, with the map."""
    import numpy as np

    axes = [(np.arange(n) - (n - 1) / 2) / _half(n, p["align_corners"]) for n in p["out"]]
    down, across = np.meshgrid(*axes, indexing="ij")
    points = np.stack([across, down, np.ones_like(across)], axis=-1).reshape(-1, 3)
    moved = g.MatMul(g.constant(points, p["dtype"]), g.Transpose(theta, perm=[0, 2, 1]))
    return g.Reshape(moved, [p["batch"], *p["out"], 2])


def _warp_grid(g: GraphBuilder, p: Params, flow: str) -> Any:
    import numpy as np

    height, width = p["image"]
    scale = np.array([2 / (width - 1), 2 / (height - 1)]).reshape(1, 2, 1, 1)
    down, across = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    base = np.stack([across, down])[None] * scale - 1
    return g.Add(g.Mul(flow, g.constant(scale, p["dtype"])), g.constant(base, p["dtype"]))


def _grid_sample(g: GraphBuilder, p: Params, x: str, grid: str) -> Any:
    corners = int(p["align_corners"])
    return g.GridSample(x, grid, mode="linear", padding_mode=p["padding_mode"], align_corners=corners)


def _spatial_transformer(g: GraphBuilder, p: Params, x: str, theta: str) -> Any:
    return _grid_sample(g, p, x, _affine_grid(g, p, theta))


def _roi_pooling(g: GraphBuilder, p: Params, x: str, rois: str) -> Any:
    return g.MaxRoiPool(x, g.Cast(rois, to=p["dtype"]), pooled_shape=p["out"])


def _roi_align(g: GraphBuilder, p: Params, x: str, rois: str) -> Any:
    images, boxes = g.Slice(rois, [0], [1], [1]), g.Slice(rois, [1], [5], [1])
    height, width = p["out"]
    sizes = {"output_height": height, "output_width": width, "sampling_ratio": p["samples"]}
    how = {"mode": "avg", "coordinate_transformation_mode": "half_pixel"}
    return g.RoiAlign(x, boxes, g.Cast(g.Squeeze(images, [1]), to="int64"), **sizes, **how)


_DIMS = (1, 2, 3)
IMPLEMENTATIONS = {
    **{f"conv{n}d": _conv(n) for n in _DIMS},
    **{f"conv_transpose{n}d": _conv_transpose(n) for n in _DIMS},
    "grouped_conv2d": _conv(2),
    "depthwise_conv2d": _conv(2, lambda p: p["channels"]),
    "pointwise_conv2d": _conv(2),
    "conv_relu": graph(_conv_relu),
    "conv_bn": graph(_conv_bn),
    "conv_bn_relu": graph(_conv_bn_relu),
    **{f"max_pool{n}d": _max_pool(n) for n in _DIMS},
    **{f"avg_pool{n}d": _avg_pool(n) for n in _DIMS},
    **{f"sum_pool{n}d": _sum_pool(n) for n in _DIMS},
    **{f"lp_pool{n}d": _lp_pool(n) for n in _DIMS},
    **{f"global_max_pool{n}d": node("GlobalMaxPool", "x") for n in _DIMS},
    **{f"global_avg_pool{n}d": node("GlobalAveragePool", "x") for n in _DIMS},
    **{f"global_sum_pool{n}d": _global_sum(n) for n in _DIMS},
    **{f"adaptive_max_pool{n}d": _adaptive("ReduceMax", "MaxPool", n) for n in _DIMS},
    **{f"adaptive_avg_pool{n}d": _adaptive("ReduceMean", "AveragePool", n) for n in _DIMS},
    **{f"max_unpool{n}d": graph(_max_unpool) for n in _DIMS},
    "im2col": graph(_im2col),
    "col2im": graph(_col2im, path="onnx.Col2Im"),
    **{f"upsample_nearest{n}d": _resize("nearest") for n in _DIMS},
    "upsample_linear1d": _resize("linear"),
    "upsample_bilinear2d": _resize("linear"),
    "upsample_trilinear3d": _resize("linear"),
    "upsample_bicubic2d": _resize("cubic"),
    "grid_sample": graph(_grid_sample, path="onnx.GridSample"),
    "affine_grid": graph(_affine_grid),
    "warp_grid": graph(_warp_grid),
    "spatial_transformer": graph(_spatial_transformer),
    "roi_pooling": graph(_roi_pooling, path="onnx.MaxRoiPool"),
    "roi_align": graph(_roi_align, path="onnx.RoiAlign"),
}
