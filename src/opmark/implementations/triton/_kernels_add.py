# mypy: ignore-errors
"""x + y, with y as large as x or broadcast over it."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_BLOCK = 1024
# Steps of y (down, right) by its shape; `same` needs none.
_STEPS = {"same": (0, 0), "row": (0, 1), "column": (1, 0), "scalar": (0, 0)}


@triton.jit
def add_kernel(x, y, out, n, columns, down, right, SAME: tl.constexpr, BLOCK: tl.constexpr):
    """Add y to x; `down` and `right` are the steps of y for a row and for a column of x."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    of_y = at if SAME else at // columns * down + at % columns * right
    total = tl.load(x + at, mask=inside) + tl.load(y + of_y, mask=inside)
    tl.store(out + at, total, mask=inside)


def add(x: Any, y: Any, shape: str) -> Any:
    """Add y to x; `shape` is the operator's name for the shape of y."""
    out, n = torch.empty_like(x), x.numel()
    grid = (triton.cdiv(n, _BLOCK),)
    add_kernel[grid](x, y, out, n, x.shape[-1], *_STEPS[shape], SAME=shape == "same", BLOCK=_BLOCK)
    return out
