"""Pools with a given output size: global ones, with one window per image, and adaptive ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import torch
from opmark.operators._pool import AVG, MAX, SUM, Kind, Windows, pool, spans
from opmark.operators._windows import AXES, FULL_PRECISION, has_axes, torch_function
from opmark.schema import Implementation, Launch, Operator, Params
from opmark.schema.dtype import FLOATS
from opmark.schema.param import shape


def _global(kind: Kind, stem: str, dims: int, *aliases: str) -> Operator:
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
        implementations=(_torch_sum(axes) if kind is SUM else _torch_adaptive(stem, dims, lambda p: ones),),
        aliases=aliases,
    )


def _torch_sum(axes: tuple[int, ...]) -> Implementation:
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


def _adaptive(kind: Kind, stem: str, dims: int, *aliases: str) -> Operator:
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


OPERATORS = (
    *(_global(MAX, "max", dims, f"GlobalMaxPool{dims}D") for dims in (1, 2, 3)),
    *(_global(AVG, "avg", dims, f"GlobalAvgPool{dims}D") for dims in (1, 2, 3)),
    *(_global(SUM, "sum", dims, f"GlobalSumPool{dims}D") for dims in (1, 2, 3)),
    *(_adaptive(MAX, "max", dims, f"AdaptiveMaxPool{dims}d") for dims in (1, 2, 3)),
    _adaptive(AVG, "avg", 1, "AdaptiveAvgPool1d"),
    _adaptive(AVG, "avg", 2, "AdaptiveAvgPool2d", "AdaptiveAvgPooling2D"),
    _adaptive(AVG, "avg", 3, "AdaptiveAvgPool3d"),
)
