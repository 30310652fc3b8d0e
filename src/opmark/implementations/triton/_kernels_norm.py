# mypy: ignore-errors
"""layer_norm and rms_norm along the last axis, computed in float32 or wider. A row that fits into registers is read
once; a longer one is read again for each sum and for the result. EPS is a constant, as an argument would be a float32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from opmark.implementations.triton._kernels_softmax import warps

_MOST_BYTES = 64 << 10
"""Bytes of a row in registers, in the precision that it is computed in."""
_TILE = 1024
_LONG = 4096


@triton.jit
def layer_norm_rows(
    x, weight, bias, out, rows, columns, EPS: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Normalise whole rows at once."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(WIDE)
    mean = tl.sum(value, axis=1) / columns
    centred = tl.where(column < columns, value - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / columns
    scale = tl.load(weight + column, mask=column < columns).to(WIDE)
    shift = tl.load(bias + column, mask=column < columns).to(WIDE)
    result = centred / tl.sqrt(variance + tl.full([ROWS], EPS, WIDE))[:, None] * scale + shift
    tl.store(out + row * columns + column, result, mask=inside)


@triton.jit
def layer_norm_long(x, weight, bias, out, columns, EPS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Normalise one row per program, in pieces."""
    start = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros([BLOCK], WIDE)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(x + start + at, mask=at < columns, other=0.0).to(WIDE)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros([BLOCK], WIDE)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        centred = tl.load(x + start + at, mask=at < columns, other=0.0).to(WIDE) - mean
        squares += tl.where(at < columns, centred * centred, 0.0)
    root = tl.sqrt(tl.sum(squares, axis=0) / columns + tl.full([1], EPS, WIDE))
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(x + start + at, mask=at < columns, other=0.0).to(WIDE)
        scale = tl.load(weight + at, mask=at < columns, other=0.0).to(WIDE)
        shift = tl.load(bias + at, mask=at < columns, other=0.0).to(WIDE)
        tl.store(out + start + at, (value - mean) / root * scale + shift, mask=at < columns)


@triton.jit
def rms_norm_rows(
    x, weight, out, rows, columns, EPS: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(WIDE)
    root = tl.sqrt(tl.sum(value * value, axis=1) / columns + tl.full([ROWS], EPS, WIDE))
    scale = tl.load(weight + column, mask=column < columns).to(WIDE)
    tl.store(out + row * columns + column, value / root[:, None] * scale, mask=inside)


@triton.jit
def rms_norm_long(x, weight, out, columns, EPS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    squares = tl.zeros([BLOCK], WIDE)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(x + start + at, mask=at < columns, other=0.0).to(WIDE)
        squares += value * value
    root = tl.sqrt(tl.sum(squares, axis=0) / columns + tl.full([1], EPS, WIDE))
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(x + start + at, mask=at < columns, other=0.0).to(WIDE)
        scale = tl.load(weight + at, mask=at < columns, other=0.0).to(WIDE)
        tl.store(out + start + at, value / root * scale, mask=at < columns)


def layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _normalise(layer_norm_rows, layer_norm_long, x, (weight, bias), eps)


def rms_norm(x: Any, weight: Any, eps: float) -> Any:
    return _normalise(rms_norm_rows, rms_norm_long, x, (weight,), eps)


def _normalise(whole: Any, pieces: Any, x: Any, vectors: tuple[Any, ...], eps: float) -> Any:
    out, columns = torch.empty_like(x), x.shape[-1]
    count = x.numel() // columns
    wide = tl.float64 if x.dtype == torch.float64 else tl.float32
    if columns * (8 if wide == tl.float64 else 4) <= _MOST_BYTES:
        block = triton.next_power_of_2(columns)
        rows = max(1, _TILE // block)
        grid = (triton.cdiv(count, rows),)
        whole[grid](x, *vectors, out, count, columns, eps, wide, rows, block, num_warps=warps(rows * block))
    else:
        pieces[(count,)](x, *vectors, out, columns, eps, wide, _LONG, num_warps=8)
    return out
