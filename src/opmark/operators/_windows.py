"""Windows that move over an image of one, two or three axes, for convolutions, pools and im2col."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.operators import _numpy as np
from opmark.schema import Params, Rule, Tolerance
from opmark.schema.dtype import FLOATS

AXES = {1: "length", 2: "height x width", 3: "depth x height x width"}
_COUNT = {1: "one size", 2: "two sizes", 3: "three sizes"}

FULL_PRECISION = tuple(name for name in FLOATS if name in ("float32", "float64"))
"""For operators that frameworks do not offer in 16 bits, or not with the precision of the type."""


class Positions(Tolerance):
    """For values that are interpolated between the elements of an image.

    A position has the precision of float32, so that weights are off by its rounding times the size of the image,
    forwards and backwards. 16-bit types, at least 200 times coarser, show that only in larger images.
    """

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        relative, typical = super().bounds(dtype, params)
        reach = max(*params["image"], *params["out"]) / 8
        # 16-bit gradients on a GPU (an H200) were up to 1.1 times as far off as one rounding explains; probably it adds
        # them up in the stored type.
        grown = max(1.0, reach) if dtype in FULL_PRECISION else max(2.0, reach / 200)
        return relative * grown, typical * grown


def out_sizes(p: Params) -> tuple[int, ...]:
    """Return the number of windows along each axis."""
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


def pad_image(p: Params, x: Any, value: float = 0.0) -> Any:
    """Pad `x` (batch x channels x image) with `padding` values on both sides of each axis of the image."""
    pad = p.get("padding", 0)
    return np.pad(x, ((0, 0), (0, 0), *((pad, pad),) * (x.ndim - 2)), constant_values=value) if pad else x


def window_values(p: Params, x: Any, at: Sequence[int], windows: Sequence[int]) -> Any:
    """Return the values of a padded `x` that meet the kernel's element `at` in each of the windows."""
    stride, starts = p["stride"], [p.get("dilation", 1) * i for i in at]
    where = (..., *(slice(s, s + stride * (n - 1) + 1, stride) for s, n in zip(starts, windows, strict=True)))
    return x[where]


def columns(p: Params, x: Any) -> Any:
    """Return a view of a padded `x` as batch x channels x kernel x windows; kernel and windows each have as many axes
    as the image."""
    dims, dilation = len(p["kernel"]), p.get("dilation", 1)
    reach = tuple(dilation * (k - 1) + 1 for k in p["kernel"])
    axes = tuple(range(2, 2 + dims))
    every = slice(None)
    steps = (every, every, *(slice(None, None, p["stride"]),) * dims, *(slice(None, None, dilation),) * dims)
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)[steps]
    return view.transpose(0, 1, *(a + dims for a in axes), *axes)


def torch_function(name: str) -> Any:
    """Return a function of torch.nn.functional."""
    import torch

    return getattr(torch.nn.functional, name)
