"""Pools over one, two and three axes: sliding, global and adaptive ones, and the inverse of a max pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import INDEX_BYTES
from opmark.catalogue.operators._builders import formula, torch
from opmark.catalogue.operators._window import (
    AVG,
    AXES,
    FITS,
    FITS_UNDILATED,
    FULL_PRECISION,
    MAX,
    NORM,
    SUM,
    PoolKind,
    Windows,
    columns,
    covered_elements,
    has_axes,
    image_params,
    out_sizes,
    pad_image,
    planes,
    pool,
    presets,
    spans,
    torch_function,
)
from opmark.plugin import Implementation, Launch, Operator, Param, ParamRule, Params
from opmark.plugin.param import dtype, flag, integer, real, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof


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
    kind: PoolKind,
    stem: str,
    dims: int,
    params: Sequence[Param],
    rules: Sequence[ParamRule],
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
        covered=covered_elements,
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

PADS_HALF = ParamRule("padding", "be at most half of the kernel {kernel} (got {padding})",
                 lambda p: 2 * p["padding"] <= min(p["kernel"]))  # fmt: skip
# Otherwise all elements of a window may lie in the padding.
SEES = ParamRule(
    "dilation", "be at most the image {image} (got {dilation})", lambda p: p["dilation"] <= min(p["image"])
)
A_NORM = ParamRule("norm_type", "be at least 1 (got {norm_type})", lambda p: p["norm_type"] >= 1)


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


# Pools with a given output size: global ones, with one window per image, and adaptive ones.


def _global(kind: PoolKind, stem: str, dims: int, *aliases: str) -> Operator:
    axes, ones = tuple(range(2, 2 + dims)), (1,) * dims

    def reference(p: Params, x: Any) -> Any:
        return kind.pooled(p, lambda _, function: function(x, axis=axes, keepdims=True))

    return pool(
        f"global_{stem}_pool{dims}d",
        f"{kind.says} of each channel of an image of {AXES[dims]}",
        kind,
        dims,
        out=lambda p: ones,
        values=lambda p: prod(p["image"]),
        reference=reference,
        implementations=(_torch_adaptive_sum(axes) if kind is SUM else _torch_adaptive(stem, dims, lambda p: ones),),
        aliases=aliases,
        gradient_view=kind is SUM,  # each element gets the incoming gradient as it is, which needs no copies
    )


def _torch_adaptive_sum(axes: tuple[int, ...]) -> Implementation:
    def build(p: Params, x: Any) -> Launch:
        import torch as framework

        return partial(framework.sum, x, dim=axes, keepdim=True)

    return torch(build)


def _torch_adaptive(stem: str, dims: int, out: Callable[[Params], tuple[int, ...]]) -> Implementation:
    name = f"adaptive_{stem}_pool{dims}d"

    def build(p: Params, x: Any) -> Launch:
        return partial(torch_function(name), x, out(p))

    return torch(build, f"torch.nn.functional.{name}")


def _adaptive_windows(p: Params, x: Any) -> Windows:
    """Pool axis by axis, which is exact for a maximum and, as windows are rectangles, for a mean."""

    def windows(padding: float, function: Callable[..., Any]) -> Any:
        found = x
        for axis, (image, out) in enumerate(zip(p["image"], p["out"], strict=True), 2):
            moved = np.moveaxis(found, axis, 0)
            found = np.moveaxis(np.stack([function(moved[span], axis=0) for span in spans(image, out)]), 0, axis)
        return np.ascontiguousarray(found)

    return windows


def _values(p: Params) -> int:
    pairs = zip(p["image"], p["out"], strict=True)
    return prod(sum(span.stop - span.start for span in spans(*pair)) for pair in pairs)


def _adaptive(kind: PoolKind, stem: str, dims: int, *aliases: str) -> Operator:
    return pool(
        f"adaptive_{stem}_pool{dims}d",
        f"{kind.says} of each window of an image divided into `out` windows, of {AXES[dims]}",
        kind,
        dims,
        out=lambda p: tuple(p["out"]),
        values=_values,
        reference=lambda p, x: kind.pooled(p, _adaptive_windows(p, x)),
        implementations=(_torch_adaptive(stem, dims, lambda p: tuple(p["out"])),),
        params=(shape("out", f"{AXES[dims]} of the output"),),
        preset={"out": [7] * dims},
        rules=(has_axes("out", dims),),
        # On a CPU, torch sums the mean over three axes in the type of x, which loses all digits in 16 bits.
        dtypes=FULL_PRECISION if dims == 3 and kind is AVG else FLOATS,
        aliases=aliases,
    )


# The inverse of a max pool: each value goes to the index where it was found, zeros elsewhere.


def _pooled_sizes(p: Params) -> tuple[int, ...]:
    return tuple(n // k for n, k in zip(p["image"], p["kernel"], strict=True))


def _pool_indices(p: Params, generator: Any) -> Any:
    """Return indices as a max pool does: a random place in each window, as an index into the whole image."""
    sizes = (p["batch"], p["channels"], *_pooled_sizes(p))
    grid = np.meshgrid(*(np.arange(n) * k for n, k in zip(_pooled_sizes(p), p["kernel"], strict=True)), indexing="ij")
    at = [start + generator.integers(0, k, sizes) for start, k in zip(grid, p["kernel"], strict=True)]
    return np.ravel_multi_index(tuple(at), tuple(p["image"]))


def _inputs(p: Params) -> dict[str, TensorSpec]:
    sizes = (p["batch"], p["channels"], *_pooled_sizes(p))
    return {
        "x": TensorSpec(sizes, p["dtype"]),
        "indices": TensorSpec(sizes, "int64", 0, prod(p["image"]), make=partial(_pool_indices, p)),
    }


def _sizes(p: Params) -> tuple[int, int, int]:
    return planes(p) * prod(_pooled_sizes(p)), planes(p) * prod(p["image"]), sizeof(p["dtype"])


def _cost(p: Params) -> Cost:
    values, image, nbytes = _sizes(p)
    return Cost(0, values * (nbytes + INDEX_BYTES), image * nbytes)


def _backward_cost(p: Params) -> Cost:
    """Only the elements of the incoming gradient that the indices point at are read."""
    values, _, nbytes = _sizes(p)
    return Cost(0, values * (nbytes + INDEX_BYTES), values * nbytes)


def _reference(p: Params, x: Any, indices: Any) -> Any:
    flat = np.zeros((p["batch"], p["channels"], prod(p["image"])), x.dtype)
    rows = (p["batch"], p["channels"], -1)
    np.put_along_axis(flat, indices.reshape(rows), x.reshape(rows), axis=-1)
    return flat.reshape(p["batch"], p["channels"], *p["image"])


def _operator(dims: int, *aliases: str) -> Operator:
    name = f"max_unpool{dims}d"

    def build(p: Params, x: Any, indices: Any) -> Launch:
        kernel, image = tuple(p["kernel"]), tuple(p["image"])
        return partial(torch_function(name), x, indices, kernel, output_size=image)

    return Operator(
        name=name,
        summary=f"the inverse of a max pool: values at their indices in an image of {AXES[dims]}, else zeros",
        category="pooling",
        params=(*image_params(dims), shape("kernel", f"{AXES[dims]} of a window", [2] * dims), dtype(*FLOATS)),
        inputs=_inputs,
        cost=_cost,
        backward_cost=_backward_cost,
        reference=_reference,
        presets=presets(dims),
        rules=(
            has_axes("image", dims),
            has_axes("kernel", dims),
            ParamRule("kernel", "fit into the image {image} (got {kernel})", lambda p: min(_pooled_sizes(p)) >= 1),
        ),
        gradients=("x",),
        implementations=(formula(_reference), torch(build, f"torch.nn.functional.{name}")),
        aliases=aliases,
    )


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
    *(_global(MAX, "max", dims, f"GlobalMaxPool{dims}D") for dims in (1, 2, 3)),
    *(_global(AVG, "avg", dims, f"GlobalAvgPool{dims}D") for dims in (1, 2, 3)),
    *(_global(SUM, "sum", dims, f"GlobalSumPool{dims}D") for dims in (1, 2, 3)),
    *(_adaptive(MAX, "max", dims, f"AdaptiveMaxPool{dims}d") for dims in (1, 2, 3)),
    _adaptive(AVG, "avg", 1, "AdaptiveAvgPool1d"),
    _adaptive(AVG, "avg", 2, "AdaptiveAvgPool2d", "AdaptiveAvgPooling2D"),
    _adaptive(AVG, "avg", 3, "AdaptiveAvgPool3d"),
    _operator(1, "MaxUnpool1d"),
    _operator(2, "MaxUnpool2d"),
    _operator(3, "MaxUnpool3d"),
)
