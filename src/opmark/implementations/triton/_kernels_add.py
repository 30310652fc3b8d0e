# mypy: ignore-errors
"""x + y, y as large as x or broadcast over it."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_BLOCK = 1024
# y as large as x; along the rows of x; along its columns; a single element.
_STEPS = {"same": (0, 0), "row": (0, 1), "column": (1, 0), "scalar": (0, 0)}


@triton.jit
def add_kernel(x, y, out, n, columns, down, right, SAME: tl.constexpr, BLOCK: tl.constexpr):
    """`down`, `right`: how far y goes with a row and with a column of x."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    of_y = at if SAME else at // columns * down + at % columns * right
    total = tl.load(x + at, mask=inside) + tl.load(y + of_y, mask=inside)
    tl.store(out + at, total, mask=inside)


def add(x: Any, y: Any, shape: str) -> Any:
    """`shape`: that of y, as the operator names it."""
    out, n = torch.empty_like(x), x.numel()
    grid = (triton.cdiv(n, _BLOCK),)
    add_kernel[grid](x, y, out, n, x.shape[-1], *_STEPS[shape], SAME=shape == "same", BLOCK=_BLOCK)
    return out
