"""Upsampling of images (nearest, linear and cubic, axis by axis), and conversion of windows to columns and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, torch
from opmark.catalogue.operators._window import (
    AXES,
    FITS,
    Positions,
    columns,
    covered_elements,
    has_axes,
    out_sizes,
    pad_image,
    torch_function,
    window_values,
)
from opmark.plugin import Launch, Operator, Param, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, flag, integer, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

Taps = Callable[[int, int, bool], Sequence[tuple[Any, Any]]]
"""taps(image, out, align_corners) returns (indices, weights) along one axis: an output element is the sum of the
elements at these indices times their weights."""


def _nearest(image: int, out: int, align_corners: bool) -> Sequence[tuple[Any, Any]]:
    return [(np.arange(out) * image // out, np.ones(out))]


def _positions(image: int, out: int, align_corners: bool) -> Any:
    """Return the positions of output elements in the input: corners on corners, or edges on edges."""
    if align_corners:
        return np.arange(out) * ((image - 1) / (out - 1) if out > 1 else 0.0)
    return (np.arange(out) + 0.5) * (image / out) - 0.5


def _linear(image: int, out: int, align_corners: bool) -> Sequence[tuple[Any, Any]]:
    at = np.maximum(_positions(image, out, align_corners), 0.0)
    low = np.floor(at).astype(int)
    return [(low, 1.0 - (at - low)), (np.minimum(low + 1, image - 1), at - low)]


def _cubic(image: int, out: int, align_corners: bool) -> Sequence[tuple[Any, Any]]:
    """Use the border element for indices outside the image."""
    at = _positions(image, out, align_corners)
    low = np.floor(at).astype(int)
    return [(np.clip(low + i, 0, image - 1), _keys(np.abs(at - low - i))) for i in (-1, 0, 1, 2)]


def _keys(x: Any, a: float = -0.75) -> Any:
    """Return Keys' cubic kernel, with the parameter that frameworks use."""
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, near, far)


def _inputs(p: Params) -> dict[str, TensorSpec]:
    return {"x": TensorSpec((p["batch"], p["channels"], *p["image"]), p["dtype"])}


def _sizes(p: Params) -> tuple[int, int, int]:
    planes = p["batch"] * p["channels"]
    return planes * prod(p["image"]), planes * prod(p["out"]), sizeof(p["dtype"])


GROWS = ParamRule("out", "be at least the image {image} (got {out})",
             lambda p: all(out >= n for out, n in zip(p["out"], p["image"], strict=True)))  # fmt: skip
# Otherwise an element may lie half-way between two others, and rounding decides which is nearer.
WHOLE = ParamRule("out", "be a multiple of the image {image} along each axis (got {out})",
             lambda p: all(out % n == 0 for out, n in zip(p["out"], p["image"], strict=True)))  # fmt: skip
CORNERS = flag("align_corners", "the centres of the corner pixels coincide; otherwise their outer edges do")


def _params(dims: int, more: tuple[Param, ...]) -> tuple[Param, ...]:
    return (
        size("batch", "images"),
        size("channels", "channels"),
        shape("image", f"{AXES[dims]} of the input"),
        shape("out", f"{AXES[dims]} of the output"),
        *more,
        dtype(*FLOATS),
    )


def _operator(mode: str, dims: int, count: int, taps: Taps, *aliases: str) -> Operator:
    """Make an operator; `count` is the number of input elements along an axis that make one output element."""
    nearest = count == 1

    def reference(p: Params, x: Any) -> Any:
        for axis, (image, out) in enumerate(zip(p["image"], p["out"], strict=True), 2):
            row = (-1, *(1,) * (x.ndim - 1 - axis))
            parts = taps(image, out, p.get("align_corners", False))
            x = sum(x.take(index, axis) * weight.astype(x.dtype).reshape(row) for index, weight in parts)
        return x

    def cost(p: Params) -> Cost:
        read, written, nbytes = _sizes(p)
        return Cost(0 if nearest else 2 * count**dims * written, read * nbytes, written * nbytes)

    def backward_cost(p: Params) -> Cost:
        """Each incoming gradient is added to its input elements, times their weights."""
        read, written, nbytes = _sizes(p)
        return Cost(written if nearest else 2 * count**dims * written, written * nbytes, read * nbytes)

    def build(p: Params, x: Any) -> Launch:
        corners = {} if nearest else {"align_corners": p["align_corners"]}
        return partial(torch_function("interpolate"), x, size=tuple(p["out"]), mode=mode, **corners)

    return Operator(
        name=f"upsample_{mode}{dims}d",
        summary=f"an image of {AXES[dims]} made larger, {_SAYS[count]}",
        category="resizing",
        params=_params(dims, () if nearest else (CORNERS,)),
        inputs=_inputs,
        cost=cost,
        backward_cost=backward_cost,
        reference=reference,
        tolerance=Tolerance() if nearest else Positions(),
        presets=_presets(dims),
        rules=(has_axes("image", dims), has_axes("out", dims), GROWS, *((WHOLE,) if nearest else ())),
        gradients=("x",),
        implementations=(formula(reference), torch(build, "torch.nn.functional.interpolate")),
        aliases=aliases,
    )


_SAYS = {
    1: "each element repeated",
    2: "linear between neighbours",
    4: "cubic between neighbours",
}


def _presets(dims: int) -> dict[str, dict[str, Any]]:
    images = {
        "small": {1: (2, 16, [256]), 2: (1, 8, [28, 28]), 3: (1, 4, [4, 8, 8])},
        "typical": {1: (16, 64, [512]), 2: (4, 32, [56, 56]), 3: (1, 16, [8, 28, 28])},
        "large": {1: (64, 256, [2048]), 2: (16, 64, [112, 112]), 3: (2, 32, [16, 56, 56])},
    }
    return {
        name: {"batch": batch, "channels": channels, "image": image, "out": [2 * n for n in image]}
        for name, (batch, channels, image) in ((name, sizes[dims]) for name, sizes in images.items())
    }


# Conversion of windows of an image to columns and back: im2col, col2im.


def _image(p: Params) -> TensorSpec:
    return TensorSpec((p["batch"], p["channels"], *p["image"]), p["dtype"])


def _columns(p: Params) -> TensorSpec:
    return TensorSpec((p["batch"], p["channels"] * prod(p["kernel"]), prod(out_sizes(p))), p["dtype"])


def _unfold_cost(p: Params) -> Cost:
    """Every element of the image that lies in a window is read once, however many windows contain it."""
    read = p["batch"] * p["channels"] * covered_elements(p) * sizeof(p["dtype"])
    return Cost(0, read, _columns(p).nbytes)


def _fold_cost(p: Params) -> Cost:
    """Each element of a column is added to the image."""
    return Cost(_columns(p).nbytes // sizeof(p["dtype"]), _columns(p).nbytes, _image(p).nbytes)


def _im2col(p: Params, x: Any) -> Any:
    return columns(p, pad_image(p, x)).reshape(_columns(p).shape)


def _col2im(p: Params, x: Any) -> Any:
    """Add one element of the kernel at a time, then cut off the padding."""
    cut, windows, dims = p["padding"], out_sizes(p), len(p["image"])
    out = np.zeros((p["batch"], p["channels"], *(n + 2 * cut for n in p["image"])), x.dtype)
    parts = np.moveaxis(x.reshape(p["batch"], p["channels"], *p["kernel"], *windows), range(2, 2 + dims), range(dims))
    for at in np.ndindex(*p["kernel"]):
        place = window_values(p, out, at, windows)
        place += parts[at]
    inner = (..., *(slice(cut, cut + n) for n in p["image"]))
    return np.ascontiguousarray(out[inner])


def _options(p: Params) -> dict[str, Any]:
    return {"kernel_size": tuple(p["kernel"]), **{key: p[key] for key in ("dilation", "padding", "stride")}}


def _torch_unfold(p: Params, x: Any) -> Launch:
    return partial(torch_function("unfold"), x, **_options(p))


def _torch_fold(p: Params, x: Any) -> Launch:
    return partial(torch_function("fold"), x, tuple(p["image"]), **_options(p))


def _preset(batch: int, channels: int, image: int) -> dict[str, Any]:
    return {"batch": batch, "channels": channels, "image": [image, image]}


PARAMS = (
    size("batch", "images"),
    size("channels", "channels of the image"),
    shape("image", f"{AXES[2]} of the image"),
    shape("kernel", f"{AXES[2]} of a window", [3, 3]),
    size("stride", "step between two windows", 1),
    integer("padding", "zeros on each side of the image", 1, kind="count"),
    size("dilation", "step between two elements of a window", 1),
    dtype(*FLOATS),
)
RULES = (has_axes("image", 2), has_axes("kernel", 2), FITS)
PRESETS = {"small": _preset(1, 8, 28), "typical": _preset(8, 16, 56), "large": _preset(32, 64, 56)}

IM2COL = Operator(
    name="im2col",
    summary="each window of an image as a column of a matrix",
    category="convolution",
    params=PARAMS,
    inputs=lambda p: {"x": _image(p)},
    cost=_unfold_cost,
    backward_cost=_fold_cost,
    reference=_im2col,
    presets=PRESETS,
    rules=RULES,
    gradients=("x",),
    trivial=lambda p: bool(p["kernel"] == p["image"] and not p["padding"]),  # one window: the image itself
    implementations=(formula(_im2col), torch(_torch_unfold, "torch.nn.functional.unfold")),
    aliases=("Unfold",),
)

COL2IM = Operator(
    name="col2im",
    summary="an image as the sum of windows, the columns of a matrix",
    category="convolution",
    params=PARAMS,
    inputs=lambda p: {"x": _columns(p)},
    cost=_fold_cost,
    backward_cost=_unfold_cost,
    reference=_col2im,
    # An element is in as many windows as the kernel has elements. torch adds them up in the stored type, so the error
    # grows with the root of their number; Tolerance assumes an 8th of that, for sums with more digits.
    tolerance=Tolerance(terms=lambda p: 8**2 * prod(p["kernel"])),
    presets=PRESETS,
    rules=RULES,
    gradients=("x",),
    implementations=(formula(_col2im), torch(_torch_fold, "torch.nn.functional.fold")),
    aliases=("fold", "Fold"),
)


OPERATORS = (
    _operator("nearest", 1, 1, _nearest, "_upsample_nearest_exact1d"),
    _operator(
        "nearest",
        2,
        1,
        _nearest,
        "UpSampling",
        "UpsamplingNearest2d",
        "Upsample",
        "interpolate",
        "_upsample_nearest_exact2d",
    ),
    _operator("nearest", 3, 1, _nearest, "_upsample_nearest_exact3d"),
    _operator("linear", 1, 2, _linear),
    _operator("bilinear", 2, 2, _linear, "BilinearResize2D", "UpsamplingBilinear2d"),
    _operator("trilinear", 3, 2, _linear),
    _operator("bicubic", 2, 4, _cubic),
    IM2COL,
    COL2IM,
)
