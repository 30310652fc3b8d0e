"""Images: convolutions, pools, resizing, sampling, regions."""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.mxnet.implementations._rows import row
from opmark.frameworks.mxnet.implementations.network import batch_norm
from opmark.plugin import Params

AXES = ("1d", "2d", "3d")


def _each(p: Params, name: str, default: int = 1) -> tuple[int, ...]:
    """Return a parameter repeated for each axis of the image."""
    return (p.get(name, default),) * len(p["image"])


def _conv(mx: Any, p: Params, x: Any, weight: Any, bias: Any = None) -> Any:
    groups = p["channels"] if "channels" in p else p.get("groups", 1)
    return mx.nd.Convolution(
        x, weight, bias, kernel=weight.shape[2:], stride=_each(p, "stride"), dilate=_each(p, "dilation"),
        pad=_each(p, "padding", 0), num_filter=weight.shape[0], num_group=groups, no_bias=bias is None,
    )  # fmt: skip


def _conv_transpose(mx: Any, p: Params, x: Any, weight: Any) -> Any:
    return mx.nd.Deconvolution(
        x, weight, kernel=weight.shape[2:], stride=_each(p, "stride"), dilate=_each(p, "dilation"),
        pad=_each(p, "padding"), adj=_each(p, "output_padding"), num_filter=weight.shape[1] * p["groups"],
        num_group=p["groups"], no_bias=True,
    )  # fmt: skip


def _windows(p: Params) -> dict[str, Any]:
    return {
        "kernel": tuple(p["kernel"]),
        "stride": _each(p, "stride"),
        "dilate": _each(p, "dilation"),
        "pad": _each(p, "padding"),
    }


def _correlation(mx: Any, p: Params, x: Any, y: Any) -> Any:
    return mx.nd.Correlation(
        x, y, kernel_size=p["kernel"], max_displacement=p["max_displacement"], stride1=p["stride"],
        stride2=p["displacement_stride"], pad_size=p["padding"], is_multiply=True,
    )  # fmt: skip


def _pool(kind: str) -> Any:
    def call(mx: Any, p: Params, x: Any) -> Any:
        how: dict[str, Any] = {"stride": _each(p, "stride"), "pad": _each(p, "padding", 0)}
        if p.get("dilation", 1) != 1:
            raise Unsupported("MXNet's pooling has no dilation")
        if kind == "avg":
            how["count_include_pad"] = p["count_include_pad"]
        if kind == "lp":
            if p["norm_type"] not in (1, 2, 3):
                raise Unsupported("MXNet pools only by the norms 1, 2 and 3")
            how["p_value"] = int(p["norm_type"])
        return mx.nd.Pooling(x, kernel=tuple(p["kernel"]), pool_type=kind, **how)

    return row(call, "mxnet.nd.Pooling")


def _global_pool(kind: str) -> Any:
    def call(mx: Any, p: Params, x: Any) -> Any:
        return mx.nd.Pooling(x, pool_type=kind, global_pool=True)

    return row(call, "mxnet.nd.Pooling")


def _adaptive(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.contrib.AdaptiveAvgPooling2D(x, output_size=tuple(p["out"]))


def _roi_pooling(mx: Any, p: Params, x: Any, rois: Any) -> Any:
    return mx.nd.ROIPooling(x, rois.astype(x.dtype), pooled_size=tuple(p["out"]), spatial_scale=1.0)


def _roi_align(mx: Any, p: Params, x: Any, rois: Any) -> Any:
    how = {"pooled_size": tuple(p["out"]), "spatial_scale": 1.0, "sample_ratio": p["samples"], "aligned": True}
    return mx.nd.contrib.ROIAlign(x, rois, **how)


def _nearest(mx: Any, p: Params, x: Any) -> Any:
    scales = {out / n for n, out in zip(p["image"], p["out"], strict=True)}
    (scale,) = scales if len(scales) == 1 else (0.5,)
    if scale != int(scale):
        raise Unsupported("MXNet repeats pixels only by the same integer factor along both axes")
    return mx.nd.UpSampling(x, scale=int(scale), sample_type="nearest")


def _bilinear(mx: Any, p: Params, x: Any) -> Any:
    height, width = p["out"]
    return mx.nd.contrib.BilinearResize2D(x, height=height, width=width, align_corners=p["align_corners"])


def _require_zeros_and_corners(p: Params) -> None:
    if not p["align_corners"] or p.get("padding_mode", "zeros") != "zeros":
        raise Unsupported("MXNet's samplers always align corners and pad with zeros")


def _grid_sample(mx: Any, p: Params, x: Any, grid: Any) -> Any:
    _require_zeros_and_corners(p)
    return mx.nd.BilinearSampler(x, grid.transpose((0, 3, 1, 2)))


def _affine_grid(mx: Any, p: Params, theta: Any) -> Any:
    _require_zeros_and_corners(p)
    grid = mx.nd.GridGenerator(theta.reshape((-1, 6)), transform_type="affine", target_shape=tuple(p["out"]))
    return grid.transpose((0, 2, 3, 1))


def _transformer(mx: Any, p: Params, x: Any, theta: Any) -> Any:
    _require_zeros_and_corners(p)
    how = {"target_shape": tuple(p["out"]), "transform_type": "affine", "sampler_type": "bilinear"}
    return mx.nd.SpatialTransformer(x, theta.reshape((-1, 6)), **how)


def _conv_bn(mx: Any, p: Params, x: Any, weight: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    norm = {"training": False, "momentum": 0.1, **p}
    return batch_norm(mx, norm, _conv(mx, p, x, weight), gamma, beta, mean, var)


def _conv_bn_relu(mx: Any, p: Params, **tensors: Any) -> Any:
    found = _conv_bn(mx, p, **tensors)
    return (mx.nd.relu(found[0]), *found[1:]) if p.get("training") else mx.nd.relu(found)


IMPLEMENTATIONS = {
    **{f"conv{axes}": row(_conv, "mxnet.nd.Convolution") for axes in AXES},
    **{f"{kind}_conv2d": row(_conv, "mxnet.nd.Convolution") for kind in ("grouped", "depthwise", "pointwise")},
    **{f"conv_transpose{axes}": row(_conv_transpose, "mxnet.nd.Deconvolution") for axes in AXES},
    **{f"{kind}_pool{axes}": _pool(kind) for kind in ("max", "avg", "sum", "lp") for axes in AXES},
    **{f"global_{kind}_pool{axes}": _global_pool(kind) for kind in ("max", "avg", "sum") for axes in AXES},
    "adaptive_avg_pool2d": row(_adaptive, "mxnet.nd.contrib.AdaptiveAvgPooling2D"),
    "correlation": row(_correlation, "mxnet.nd.Correlation"),
    "im2col": row(lambda mx, p, x: mx.nd.im2col(x, **_windows(p)), "mxnet.nd.im2col"),
    "col2im": row(lambda mx, p, x: mx.nd.col2im(x, output_size=tuple(p["image"]), **_windows(p)), "mxnet.nd.col2im"),
    "roi_pooling": row(_roi_pooling, "mxnet.nd.ROIPooling"),
    "roi_align": row(_roi_align, "mxnet.nd.contrib.ROIAlign"),
    "upsample_nearest2d": row(_nearest, "mxnet.nd.UpSampling"),
    "upsample_bilinear2d": row(_bilinear, "mxnet.nd.contrib.BilinearResize2D"),
    "grid_sample": row(_grid_sample, "mxnet.nd.BilinearSampler"),
    "affine_grid": row(_affine_grid, "mxnet.nd.GridGenerator"),
    "warp_grid": row(lambda mx, p, flow: mx.nd.GridGenerator(flow, transform_type="warp"), "mxnet.nd.GridGenerator"),
    "spatial_transformer": row(_transformer, "mxnet.nd.SpatialTransformer"),
    "conv_relu": row(lambda mx, p, x, weight, bias: mx.nd.relu(_conv(mx, p, x, weight, bias))),
    "conv_bn": row(_conv_bn),
    "conv_bn_relu": row(_conv_bn_relu),
}
