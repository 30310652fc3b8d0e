"""Windows that move over an image of one, two or three axes: what convolutions, pools and im2col have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.operators import _numpy as np
from opmark.schema import Params, Rule, Tolerance
from opmark.schema.dtype import FLOATS

AXES = {1: "length", 2: "height x width", 3: "depth x height x width"}
_COUNT = {1: "one size", 2: "two sizes", 3: "three sizes"}

FULL_PRECISION = tuple(name for name in FLOATS if name in ("float32", "float64"))
"""For what frameworks do not offer, or not to the digits of the type, in 16 bits."""


class Positions(Tolerance):
    """For values that are taken between the elements of an image, in proportion to their distance.

    A position has the digits of a float32, so that weights are off by its rounding times the size of the image, be
    it forwards or backwards. Types of 16 bits, coarser by a factor of 200 at least, show that in larger images only.
    """

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        relative, typical = super().bounds(dtype, params)
        reach = max(*params["image"], *params["out"]) / 8
        # Gradients of 16 bits on a GPU (an H200) were up to 1.1 times as far off as rounding once explains; probably it
        # adds them up in the type that it stores.
        grown = max(1.0, reach) if dtype in FULL_PRECISION else max(2.0, reach / 200)
        return relative * grown, typical * grown


def out_sizes(p: Params) -> tuple[int, ...]:
    """Windows along each axis."""
    return tuple(_windows(p, *sizes) for sizes in zip(p["image"], p["kernel"], strict=True))


def _windows(p: Params, image: int, kernel: int) -> int:
    reach = p.get("dilation", 1) * (kernel - 1) + 1
    return int((image + 2 * p.get("padding", 0) - reach) // p["stride"] + 1)


def has_axes(name: str, dims: int) -> Rule:
    return Rule(name, f"have {_COUNT[dims]}, {AXES[dims]} (got {{{name}}})", lambda p: len(p[name]) == dims)


FITS = Rule(
    "kernel",
    "fit into the padded image {image} (got {kernel} with dilation {dilation})",
    lambda p: min(out_sizes(p)) >= 1,
)
FITS_UNDILATED = Rule(
    "kernel", "fit into the padded image {image} (got {kernel})", lambda p: min(out_sizes(p)) >= 1
)  # fmt: skip


def padded(p: Params, x: Any, value: float = 0.0) -> Any:
    """`x` of batch x channels x image with `padding` values on both sides of each axis of the image."""
    pad = p.get("padding", 0)
    return np.pad(x, ((0, 0), (0, 0), *((pad, pad),) * (x.ndim - 2)), constant_values=value) if pad else x


def seen(p: Params, x: Any, at: Sequence[int], windows: Sequence[int]) -> Any:
    """Of a padded `x`, what the kernel's element `at` sees in each of the windows."""
    stride, starts = p["stride"], [p.get("dilation", 1) * i for i in at]
    where = (..., *(slice(s, s + stride * (n - 1) + 1, stride) for s, n in zip(starts, windows, strict=True)))
    return x[where]


def columns(p: Params, x: Any) -> Any:
    """A view of a padded `x` as batch x channels x kernel x windows, each of the last two with an axis for each of
    the image's."""
    dims, dilation = len(p["kernel"]), p.get("dilation", 1)
    reach = tuple(dilation * (k - 1) + 1 for k in p["kernel"])
    axes = tuple(range(2, 2 + dims))
    every = slice(None)
    steps = (every, every, *(slice(None, None, p["stride"]),) * dims, *(slice(None, None, dilation),) * dims)
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)[steps]
    return view.transpose(0, 1, *(a + dims for a in axes), *axes)


def torch_function(name: str) -> Any:
    """By its name in torch.nn.functional."""
    import torch

    return getattr(torch.nn.functional, name)
