"""Windows that move over an image, for convolutions, pools and im2col; and the common parts of all pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import INDEX_BYTES
from opmark.catalogue.operators._builders import formula
from opmark.plugin import Implementation, Operator, Param, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

_IMAGES: dict[str, dict[int, tuple[int, int, list[int]]]] = {
    "small": {1: (2, 16, [256]), 2: (1, 16, [32, 32]), 3: (1, 4, [8, 16, 16])},
    "typical": {1: (16, 64, [2048]), 2: (8, 64, [56, 56]), 3: (2, 32, [16, 28, 28])},
    "large": {1: (64, 256, [4096]), 2: (64, 64, [112, 112]), 3: (8, 64, [16, 56, 56])},
}
"""Batch, channels and image by preset and number of axes."""


def presets(dims: int, **more: Any) -> dict[str, dict[str, Any]]:
    keys = ("batch", "channels", "image")
    return {name: {**dict(zip(keys, images[dims], strict=True)), **more} for name, images in _IMAGES.items()}


def image_params(dims: int) -> tuple[Param, ...]:
    return (size("batch", "images"), size("channels", "channels"), shape("image", f"{AXES[dims]} of the input"))


def planes(p: Params) -> int:
    return int(p["batch"] * p["channels"])


def order_preserving(p: Params, name: str, generator: Any, x: Any) -> Any:
    """Return a direction in which larger elements of a channel move further and equal ones together: their order
    stays."""
    plane = (*x.shape[:2], *(1,) * (x.ndim - 2))
    return generator.choice((-1.0, 1.0), size=plane) * np.exp(generator.uniform(0.5, 2.0, size=plane) * x)


def spans(image: int, out: int) -> list[slice]:
    """Return windows along one axis that are as equal as integers allow, overlapping where necessary."""
    return [slice(i * image // out, -(-(i + 1) * image // out)) for i in range(out)]


Windows = Callable[[float, Callable[..., Any]], Any]
"""windows(padding, function) applies `function` to each window of an image that is padded with this value."""


@dataclass(frozen=True)
class PoolKind:
    """How the values in a window are pooled."""

    says: str
    pooled: Callable[[Params, Windows], Any]
    flops: tuple[int, int]
    """Flops per value in a window, and per window."""
    backward_flops: tuple[int, int]
    backward_reads: Callable[[int, int, int], int]
    """Bytes read backwards, from elements of the input that lie in a window, elements of the output, and bytes per
    element."""
    domain: tuple[float, float] = (-1.0, 1.0)
    smooth: bool = True
    exact: bool = False


def _norm(p: Params, windows: Windows) -> Any:
    power = p["norm_type"]
    return windows(0.0, lambda values, axis: np.sum(values**power, axis=axis) ** (1 / power))


# Backwards, the incoming gradient goes to the largest value, whose index frameworks keep.
MAX = PoolKind("largest value", lambda p, windows: windows(-np.inf, np.max), (0, 0), (0, 1),
           lambda x, out, nbytes: out * (nbytes + INDEX_BYTES), smooth=False, exact=True)  # fmt: skip
# Backwards, the (for the mean: divided) gradient is added to each value of the window.
AVG = PoolKind("mean", lambda p, windows: windows(0.0, np.mean), (1, 0), (1, 1), lambda x, out, nbytes: out * nbytes)
SUM = PoolKind("sum", lambda p, windows: windows(0.0, np.sum), (1, -1), (1, 0), lambda x, out, nbytes: out * nbytes)
# Backwards, (value / norm) to the power p - 1, times the incoming gradient, is added to each value.
NORM = PoolKind("p-norm", _norm, (2, 0), (4, 0), lambda x, out, nbytes: (x + 2 * out) * nbytes, domain=(0.125, 2.0))


def pool(
    name: str,
    summary: str,
    kind: PoolKind,
    dims: int,
    *,
    out: Callable[[Params], Sequence[int]],
    values: Callable[[Params], int],
    reference: Callable[..., Any],
    implementations: Sequence[Implementation],
    covered: Callable[[Params], int] = lambda p: prod(p["image"]),
    params: Sequence[Param] = (),
    rules: Sequence[ParamRule] = (),
    preset: Mapping[str, Any] | None = None,
    dtypes: Sequence[str] = FLOATS,
    aliases: Sequence[str] = (),
    gradient_view: bool = False,
) -> Operator:
    """Make a pool. `out` returns the sizes of the output image, `values` the number of values in all windows of an
    image, `covered` the number of elements of an image that lie in a window."""

    def flops(p: Params, each: tuple[int, int]) -> int:
        return int(planes(p) * (each[0] * values(p) + each[1] * prod(out(p))))

    def sizes(p: Params) -> tuple[int, int, int]:
        return planes(p) * covered(p), planes(p) * prod(out(p)), sizeof(p["dtype"])

    def cost(p: Params) -> Cost:
        read, written, nbytes = sizes(p)
        return Cost(flops(p, kind.flops), read * nbytes, written * nbytes)

    def backward_cost(p: Params) -> Cost:
        whole = planes(p) * prod(p["image"]) * sizeof(p["dtype"])
        return Cost(flops(p, kind.backward_flops), kind.backward_reads(*sizes(p)), whole)

    return Operator(
        name=name,
        summary=summary,
        category="pooling",
        params=(*image_params(dims), *params, dtype(*dtypes)),
        inputs=lambda p: {"x": TensorSpec((p["batch"], p["channels"], *p["image"]), p["dtype"], *kind.domain)},
        cost=cost,
        backward_cost=None if gradient_view else backward_cost,
        reference=reference,
        tolerance=Tolerance() if kind.exact else Tolerance(terms=lambda p: -(-values(p) // prod(out(p)))),
        presets=presets(dims, **(preset or {})),
        rules=(has_axes("image", dims), *rules),
        gradients=("x",),
        gradient_view=gradient_view,
        direction=None if kind.smooth else order_preserving,
        implementations=(formula(reference), *implementations),
        aliases=tuple(aliases),
    )


# Windows that move over an image of one, two or three axes, for convolutions, pools and im2col.

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
        # A rounding of float32 is 1/170 of its tolerance; it counts twice, since neighbours differ by up to 2.
        reach = max(*params["image"], *params["out"]) / 16
        grown = max(1.0, reach if dtype in FULL_PRECISION else reach / 200)
        return relative * grown, typical * grown


def out_sizes(p: Params) -> tuple[int, ...]:
    """Return the number of windows along each axis."""
    return tuple(_windows(p, *sizes) for sizes in zip(p["image"], p["kernel"], strict=True))


def _windows(p: Params, image: int, kernel: int) -> int:
    reach = p.get("dilation", 1) * (kernel - 1) + 1
    return int((image + 2 * p.get("padding", 0) - reach) // p["stride"] + 1)


def covered_elements(p: Params) -> int:
    """Return the number of elements of an image that lie in a window: not all of them, if the stride exceeds the kernel
    or the last window ends before the image does."""
    fixed = p["stride"], p.get("padding", 0), p.get("dilation", 1)
    return prod(_covered(*sizes, *fixed) for sizes in zip(p["image"], p["kernel"], out_sizes(p), strict=True))


@lru_cache(maxsize=256)
def _covered(image: int, kernel: int, windows: int, stride: int, padding: int, dilation: int) -> int:
    """Return the number of places along one axis that lie in a window."""
    if dilation == 1 and stride <= kernel:  # windows touch or overlap
        return min(image, stride * (windows - 1) + kernel - padding) - max(0, -padding)
    places = {stride * i + dilation * k - padding for i in range(windows) for k in range(kernel)}
    return sum(0 <= place < image for place in places)


def has_axes(name: str, dims: int) -> ParamRule:
    return ParamRule(name, f"have {_COUNT[dims]}, {AXES[dims]} (got {{{name}}})", lambda p: len(p[name]) == dims)


FITS = ParamRule(
    "kernel",
    "fit into the padded image {image} (got {kernel} with dilation {dilation})",
    lambda p: min(out_sizes(p)) >= 1,
)
FITS_UNDILATED = ParamRule(
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
