"""Pooling of regions of an image to one size: roi_pooling, roi_align."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, torch
from opmark.catalogue.operators._window import AXES, FULL_PRECISION, Positions, has_axes, order_preserving, spans
from opmark.plugin import Launch, Operator, ParamRule, Params
from opmark.plugin.param import dtype, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof


def _image(p: Params) -> TensorSpec:
    return TensorSpec((p["batch"], p["channels"], *p["image"]), p["dtype"])


def _outputs(p: Params) -> int:
    return int(p["regions"] * p["channels"] * prod(p["out"]))


def _some_regions(p: Params, generator: Any) -> Any:
    """Return random regions: image, left, top, right and bottom in pixels, the last ones included."""
    (height, width), (tall, wide), n = p["image"], p["region"], p["regions"]
    top, left = generator.integers(0, height - tall + 1, n), generator.integers(0, width - wide + 1, n)
    return np.stack([generator.integers(0, p["batch"], n), left, top, left + wide - 1, top + tall - 1], axis=1)


def _pooling_inputs(p: Params) -> dict[str, TensorSpec]:
    most = max(p["batch"], *p["image"])
    return {"x": _image(p), "rois": TensorSpec((p["regions"], 5), "int64", 0, most, partial(_some_regions, p))}


def _pooling_cost(p: Params) -> Cost:
    """Comparisons are not counted; only the regions of the images are read, each pixel at most once."""
    nbytes = sizeof(p["dtype"])
    touched = min(_image(p).elements, p["regions"] * p["channels"] * prod(p["region"]))
    return Cost(0, touched * nbytes + _roi_bytes(p, "int64"), _outputs(p) * nbytes)


def _pooling_backward(p: Params) -> Cost:
    """Incoming gradients are added at the largest values, whose indices frameworks store."""
    nbytes = sizeof(p["dtype"]) + sizeof("int64")
    return Cost(_outputs(p), _outputs(p) * nbytes + _roi_bytes(p, "int64"), _image(p).nbytes)


def _roi_bytes(p: Params, kind: str) -> int:
    return int(5 * p["regions"] * sizeof(kind))


def _pool_reference(p: Params, x: Any, rois: Any) -> Any:
    out = np.empty((p["regions"], p["channels"], *p["out"]), x.dtype)
    for i, (image, left, top, right, bottom) in enumerate(rois):
        region = x[image, :, top : bottom + 1, left : right + 1]
        for y, rows in enumerate(spans(region.shape[1], p["out"][0])):
            for z, columns in enumerate(spans(region.shape[2], p["out"][1])):
                out[i, :, y, z] = region[:, rows, columns].max(axis=(1, 2))
    return out


def _torch_pooling(p: Params, x: Any, rois: Any) -> Launch:
    """Gather all bins of all regions at once; a bin that is smaller than the largest repeats its last pixel."""
    import torch as framework

    def steps(n: int) -> Any:
        return framework.arange(n, device=x.device)

    bins = [steps(out) for out in p["out"]]
    within = [
        steps(max(span.stop - span.start for span in spans(n, out)))
        for n, out in zip(p["region"], p["out"], strict=True)
    ]

    def pixels(axis: int, first: Any, last: Any) -> Any:
        """Return indices [regions, bins, pixels of a bin]."""
        n, out, i = (last - first + 1)[:, None], p["out"][axis], bins[axis]
        start, stop = i * n // out, -(-(i + 1) * n // out)
        return first[:, None, None] + framework.minimum(start[..., None] + within[axis], stop[..., None] - 1)

    def launch() -> Any:
        image, left, top, right, bottom = rois.unbind(1)
        rows, columns = pixels(0, top, bottom)[:, :, :, None, None], pixels(1, left, right)[:, None, None]
        gathered = x[image[:, None, None, None, None], :, rows, columns]
        return gathered.amax((2, 4)).permute(0, 3, 1, 2)

    return launch


def _preset(batch: int, channels: int, image: int, regions: int, region: int) -> dict[str, Any]:
    sizes = {"image": [image, image], "regions": regions, "region": [region, region]}
    return {"batch": batch, "channels": channels, **sizes, "out": [7, 7]}


PARAMS = (
    size("batch", "images"),
    size("channels", "channels"),
    shape("image", f"{AXES[2]} of the images"),
    size("regions", "regions of all images together"),
    shape("region", f"{AXES[2]} of each region, in pixels"),
    shape("out", f"{AXES[2]} of the output"),
)
RULES = (
    has_axes("image", 2),
    has_axes("region", 2),
    has_axes("out", 2),
    ParamRule("region", "fit into the image {image} (got {region})",
         lambda p: all(r <= n for r, n in zip(p["region"], p["image"], strict=True))),
)  # fmt: skip
PRESETS = {
    "small": _preset(2, 8, 40, 8, 14),
    "typical": _preset(4, 64, 56, 32, 15),
    "large": _preset(8, 256, 128, 512, 14),
}

ROI_POOLING = Operator(
    name="roi_pooling",
    summary="the largest value of each bin of each region of an image",
    category="pooling",
    params=(*PARAMS, dtype(*FLOATS)),
    inputs=_pooling_inputs,
    cost=_pooling_cost,
    backward_cost=_pooling_backward,
    reference=_pool_reference,
    presets=PRESETS,
    rules=RULES,
    gradients=("x",),
    direction=order_preserving,
    implementations=(formula(_pool_reference), torch(_torch_pooling)),
    partial=True,
    aliases=("ROIPooling", "roi_pool", "RoIPool"),
)


def _some_boxes(p: Params, generator: Any) -> Any:
    """Return random boxes: image, left, top, right and bottom, anywhere between pixels."""
    (height, width), (tall, wide), n = p["image"], p["region"], p["regions"]
    top, left = generator.uniform(0, height - tall, n), generator.uniform(0, width - wide, n)
    return np.stack([generator.integers(0, p["batch"], n), left, top, left + wide, top + tall], axis=1)


def _align_inputs(p: Params) -> dict[str, TensorSpec]:
    most = max(p["batch"], *p["image"])
    return {"x": _image(p), "rois": TensorSpec((p["regions"], 5), p["dtype"], 0, most, partial(_some_boxes, p))}


def _align_bytes_read(p: Params) -> int:
    """Return the bytes of the images that are read: two neighbours of each sample along an axis, at most all pixels of
    a region, and each pixel at most once."""
    sides = zip(p["region"], p["out"], strict=True)
    each = prod(min(2 * out * p["samples"], n + 1) for n, out in sides)
    return int(min(_image(p).elements, p["regions"] * p["channels"] * each) * sizeof(p["dtype"]))


def _align_cost(p: Params) -> Cost:
    """Count four products and their sum for each sample, and the sum of the samples."""
    flops = 9 * p["samples"] ** 2 * _outputs(p)
    return Cost(flops, _align_bytes_read(p) + _roi_bytes(p, p["dtype"]), _outputs(p) * sizeof(p["dtype"]))


def _align_backward(p: Params) -> Cost:
    """Count adding a share of each incoming gradient to the four pixels of each sample."""
    flops = (8 * p["samples"] ** 2 + 1) * _outputs(p)
    return Cost(flops, _outputs(p) * sizeof(p["dtype"]) + _roi_bytes(p, p["dtype"]), _image(p).nbytes)


def _share(p: Params, axis: int, first: float, last: float) -> Any:
    """Return a matrix [out, image]: the weight of each row (or column) in each bin."""
    n, out, samples = p["image"][axis], p["out"][axis], p["samples"]
    at = first - 0.5 + (np.arange(out * samples) + 0.5) * (last - first) / (out * samples)
    weights = np.maximum(0.0, 1 - np.abs(np.clip(at, 0, n - 1)[:, None] - np.arange(n)))
    return weights.reshape(out, samples, n).mean(axis=1)


def _align_reference(p: Params, x: Any, rois: Any) -> Any:
    out = np.empty((p["regions"], p["channels"], *p["out"]), x.dtype)
    for i, (image, left, top, right, bottom) in enumerate(rois):
        out[i] = _share(p, 0, top, bottom) @ x[int(image)] @ _share(p, 1, left, right).T
    return out


def _torch_align(p: Params, x: Any, rois: Any) -> Launch:
    """Gather the four neighbours of all samples of all regions, one neighbour at a time."""
    import torch as framework

    samples = p["samples"]
    steps = [(framework.arange(n * samples, device=x.device, dtype=x.dtype) + 0.5) / (n * samples) for n in p["out"]]

    def neighbours(axis: int, first: Any, last: Any) -> Any:
        n = p["image"][axis]
        at = (first[:, None] - 0.5 + steps[axis] * (last - first)[:, None]).clamp(0, n - 1)
        low = at.long()
        part = at - low
        return ((low, 1 - part), ((low + 1).clamp(max=n - 1), part))

    def launch() -> Any:
        image, left, top, right, bottom = rois.unbind(1)
        images = image.long()[:, None, None]
        total: Any = 0
        rows, columns = neighbours(0, top, bottom), neighbours(1, left, right)
        for row, down in rows:
            for column, across in columns:
                weight = down[:, :, None] * across[:, None, :]
                total = total + x[images, :, row[:, :, None], column[:, None, :]] * weight[..., None]
        bins = total.unflatten(2, (-1, samples)).unflatten(1, (-1, samples))
        return bins.mean((2, 4)).permute(0, 3, 1, 2)

    return launch


ROI_ALIGN = Operator(
    name="roi_align",
    summary="mean of samples in each bin of each region of an image, interpolated bilinearly",
    category="pooling",
    params=(*PARAMS, size("samples", "samples of a bin along each axis", 2), dtype(*FULL_PRECISION)),
    inputs=_align_inputs,
    cost=_align_cost,
    backward_cost=_align_backward,
    reference=_align_reference,
    tolerance=Positions(),
    presets=PRESETS,
    rules=RULES,
    gradients=("x",),
    implementations=(formula(_align_reference), torch(_torch_align)),
    partial=True,
    aliases=("ROIAlign", "RoIAlign"),
)

OPERATORS = (ROI_POOLING, ROI_ALIGN)
