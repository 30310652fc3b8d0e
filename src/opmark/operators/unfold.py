"""Conversion of windows of an image to columns and back: im2col, col2im."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula, torch
from opmark.operators._windows import AXES, FITS, columns, has_axes, out_sizes, pad_image, torch_function, window_values
from opmark.schema import Cost, Launch, Operator, Params, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, integer, shape, size


def _image(p: Params) -> TensorSpec:
    return TensorSpec((p["batch"], p["channels"], *p["image"]), p["dtype"])


def _columns(p: Params) -> TensorSpec:
    return TensorSpec((p["batch"], p["channels"] * prod(p["kernel"]), prod(out_sizes(p))), p["dtype"])


def _unfold_cost(p: Params) -> Cost:
    """Every element of the image is read once, however many windows contain it."""
    return Cost(0, _image(p).nbytes, _columns(p).nbytes)


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

OPERATORS = (IM2COL, COL2IM)
