"""Pools whose windows slide over the image: max, avg, sum and lp, over one, two and three axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import torch
from opmark.operators._pool import AVG, MAX, NORM, SUM, Kind, Windows, pool
from opmark.operators._windows import (
    AXES,
    FITS,
    FITS_UNDILATED,
    FULL_PRECISION,
    columns,
    has_axes,
    out_sizes,
    pad_image,
    torch_function,
)
from opmark.schema import Implementation, Launch, Operator, Param, Params, Rule
from opmark.schema.dtype import FLOATS
from opmark.schema.param import flag, integer, real, shape, size


def _sliding(p: Params, x: Any) -> Windows:
    axes = tuple(range(2, x.ndim))
    return lambda value, function: function(columns(p, pad_image(p, x, value)), axis=axes)


def _avg_reference(p: Params, x: Any) -> Any:
    """Compute means, in which padding counts as zeros or not at all."""
    total = SUM.pooled(p, _sliding(p, x))
    if p["count_include_pad"]:
        return total / prod(p["kernel"])
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    return total / SUM.pooled(p, _sliding(p, ones))


def _sliding_pool(
    kind: Kind,
    stem: str,
    dims: int,
    params: Sequence[Param],
    rules: Sequence[Rule],
    implementation: Implementation,
    aliases: Sequence[str],
    reference: Callable[..., Any] | None = None,
) -> Operator:
    return pool(
        f"{stem}{dims}d",
        f"{kind.says} of each window of an image of {AXES[dims]}",
        kind,
        dims,
        out=out_sizes,
        values=lambda p: prod(out_sizes(p)) * prod(p["kernel"]),
        reference=reference or (lambda p, x: kind.pooled(p, _sliding(p, x))),
        implementations=(implementation,),
        params=(_kernel(dims), STRIDE, *params),
        rules=(has_axes("kernel", dims), *rules),
        # On a CPU, torch has no 16-bit means over three axes.
        dtypes=FULL_PRECISION if dims == 3 and kind is not MAX else FLOATS,
        aliases=aliases,
    )


def _functional(stem: str, dims: int, *options: str, first: tuple[str, ...] = ()) -> Implementation:
    """Make an implementation that calls torch's function with the parameters that have the same names there."""

    def build(p: Params, x: Any) -> Launch:
        kernel = tuple(p["kernel"]) if dims > 1 else p["kernel"][0]
        before, named = (p[key] for key in first), {key: p[key] for key in options}
        return partial(torch_function(f"{stem}{dims}d"), x, *before, kernel, **named)

    return torch(build, f"torch.nn.functional.{stem}{dims}d")


def _torch_sum(dims: int) -> Implementation:
    """Make an implementation by a mean with divisor 1, as torch has no sum pool; a divisor needs at least two axes."""

    def build(p: Params, x: Any) -> Launch:
        kernel, stride, padding = tuple(p["kernel"]), p["stride"], p["padding"]
        if dims > 1:
            return partial(torch_function(f"avg_pool{dims}d"), x, kernel, stride, padding, divisor_override=1)
        mean = torch_function("avg_pool2d")
        return lambda: mean(x.unsqueeze(2), (1, *kernel), (1, stride), (0, padding), divisor_override=1).squeeze(2)

    return torch(build)


def _kernel(dims: int) -> Param:
    return shape("kernel", f"{AXES[dims]} of a window", [2] * dims)


STRIDE = size("stride", "step between two windows", 2)
PADDING = integer("padding", "elements added on each side of the image", 0, kind="count")
DILATION = size("dilation", "step between two elements of a window", 1)
COUNT = flag("count_include_pad", "divide by the size of the kernel even where it covers padding", default=True)
NORM_TYPE = real("norm_type", "p of the p-norm", 2.0)

PADS_HALF = Rule("padding", "be at most half of the kernel {kernel} (got {padding})",
                 lambda p: 2 * p["padding"] <= min(p["kernel"]))  # fmt: skip
# Otherwise all elements of a window may lie in the padding.
SEES = Rule("dilation", "be at most the image {image} (got {dilation})", lambda p: p["dilation"] <= min(p["image"]))
A_NORM = Rule("norm_type", "be at least 1 (got {norm_type})", lambda p: p["norm_type"] >= 1)


def _max(dims: int, *aliases: str) -> Operator:
    torch_max = _functional("max_pool", dims, "stride", "padding", "dilation")
    return _sliding_pool(MAX, "max_pool", dims, (PADDING, DILATION), (PADS_HALF, SEES, FITS), torch_max, aliases)


def _avg(dims: int, *aliases: str) -> Operator:
    torch_avg = _functional("avg_pool", dims, "stride", "padding", "count_include_pad")
    rules = (PADS_HALF, FITS_UNDILATED)
    return _sliding_pool(AVG, "avg_pool", dims, (PADDING, COUNT), rules, torch_avg, aliases, _avg_reference)


def _sum(dims: int, *aliases: str) -> Operator:
    return _sliding_pool(SUM, "sum_pool", dims, (PADDING,), (PADS_HALF, FITS_UNDILATED), _torch_sum(dims), aliases)


def _lp(dims: int, *aliases: str) -> Operator:
    torch_lp = _functional("lp_pool", dims, "stride", first=("norm_type",))
    return _sliding_pool(NORM, "lp_pool", dims, (NORM_TYPE,), (A_NORM, FITS_UNDILATED), torch_lp, aliases)


OPERATORS = (
    _max(1, "MaxPool1D", "MaxPool1d"),
    _max(2, "MaxPool2D", "MaxPool2d", "Pooling"),
    _max(3, "MaxPool3D", "MaxPool3d"),
    _avg(1, "AvgPool1D", "AvgPool1d"),
    _avg(2, "AvgPool2D", "AvgPool2d"),
    _avg(3, "AvgPool3D", "AvgPool3d"),
    _sum(1, "SumPool1D"),
    _sum(2, "SumPool2D"),
    _sum(3, "SumPool3D"),
    _lp(1, "LPPool1d"),
    _lp(2, "LPPool2d"),
    _lp(3, "LPPool3d"),
)
