# mypy: ignore-errors
"""exp(x) over its sum along an axis. A row that fits into registers is read once; a longer one, or one that is not
contiguous, twice: first for its maximum and its sum at once, then for the result."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import triton
import triton.language as tl

_MOST_BYTES = 128 << 10
"""Bytes of a row in registers, in the precision that it is computed in: half of a multiprocessor's registers."""
_TILE = 1024
"""Least number of elements of a program: short rows share one."""
_PER_WARP = 512


@triton.jit
def softmax_rows(x, out, rows, columns, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute whole rows at once."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    at = row * columns + column
    inside = (row < rows) & (column < columns)
    # Missing rows are all zeros: minus infinity alone would give NaN, which is slow.
    value = tl.load(x + at, mask=inside, other=0.0).to(WIDE)
    value = tl.where((column < columns) | (row >= rows), value, float("-inf"))
    power = tl.exp(value - tl.max(value, axis=1)[:, None])
    tl.store(out + at, power / tl.sum(power, axis=1)[:, None], mask=inside)


@triton.jit
def softmax_online(x, out, n, inner, WIDE: tl.constexpr, BLOCK: tl.constexpr, INNER: tl.constexpr):
    """Compute x as [outer, n, inner] along n; the sum is corrected whenever a larger maximum appears."""
    start = tl.program_id(0).to(tl.int64) * n * inner
    beside = tl.program_id(1) * INNER + tl.arange(0, INNER)[None, :]
    largest = tl.full([INNER], float("-inf"), WIDE)
    total = tl.zeros([INNER], WIDE)
    for first in range(0, n, BLOCK):
        along = first + tl.arange(0, BLOCK)[:, None]
        inside = (along < n) & (beside < inner)
        value = tl.load(x + start + along * inner + beside, mask=inside, other=0.0).to(WIDE)
        value = tl.where((along < n) | (beside >= inner), value, float("-inf"))
        larger = tl.maximum(largest, tl.max(value, axis=0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(value - larger[None, :]), axis=0)
        largest = larger
    for first in range(0, n, BLOCK):
        along = first + tl.arange(0, BLOCK)[:, None]
        inside = (along < n) & (beside < inner)
        at = start + along * inner + beside
        value = tl.load(x + at, mask=inside, other=0.0).to(WIDE)
        tl.store(out + at, tl.exp(value - largest[None, :]) / total[None, :], mask=inside)


def softmax(x: Any, axis: int) -> Any:
    out, shape = torch.empty_like(x), x.shape
    outer, n, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    wide = tl.float64 if x.dtype == torch.float64 else tl.float32
    if inner == 1 and n * (8 if wide == tl.float64 else 4) <= _MOST_BYTES:
        block = triton.next_power_of_2(n)
        rows = max(1, _TILE // block)
        grid = (triton.cdiv(outer, rows),)
        softmax_rows[grid](x, out, outer, n, wide, rows, block, num_warps=warps(rows * block))
    else:
        block, beside = (4096, 1) if inner == 1 else (64, 64)
        grid = (outer, triton.cdiv(inner, beside))
        softmax_online[grid](x, out, n, inner, wide, block, beside, num_warps=8)
    return out


def warps(elements: int) -> int:
    return int(min(16, max(4, triton.next_power_of_2(triton.cdiv(elements, _PER_WARP)))))
