# mypy: ignore-errors
"""Triton kernels: layer_norm and rms_norm along the last axis, and a matrix product in tiles.

Norms are computed in float32 or wider. A row that fits into registers is read once; a longer one is read again for each
sum and for the result. EPS is a constant, as an argument would be a float32.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import triton
import triton.language as tl

_MOST_NORM_BYTES = 64 << 10
"""Bytes of a row in registers, in the precision that it is computed in."""
_NORM_TILE = 1024
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
    if columns * (8 if wide == tl.float64 else 4) <= _MOST_NORM_BYTES:
        block = triton.next_power_of_2(columns)
        rows = max(1, _NORM_TILE // block)
        grid = (triton.cdiv(count, rows),)
        whole[grid](x, *vectors, out, count, columns, eps, wide, rows, block, num_warps=warps(rows * block))
    else:
        pieces[(count,)](x, *vectors, out, columns, eps, wide, _LONG, num_warps=8)
    return out


# x + y, with y as large as x or broadcast over it.

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


# A matrix product in tiles, in an order that reuses operands from the cache, tuned over a few tile sizes.


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    WIDE: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Compute a tile of c; a, b and c are row-major. Programs go down GROUP tiles before they go to the right, so that
    programs that run at the same time share rows of a and columns of b."""
    program = tl.program_id(0)
    tiles_m = tl.cdiv(M, TILE_M)
    in_group = GROUP * tl.cdiv(N, TILE_N)
    first = program // in_group * GROUP
    high = min(tiles_m - first, GROUP)
    tile_m = first + program % in_group % high
    tile_n = program % in_group // high
    m = tile_m.to(tl.int64) * TILE_M + tl.arange(0, TILE_M)
    n = tile_n.to(tl.int64) * TILE_N + tl.arange(0, TILE_N)
    k = tl.arange(0, TILE_K)
    # Past the end, indices wrap around, which costs less than a mask; these results are not stored.
    left = a + (m % M)[:, None] * K + k[None, :]
    right = b + k[:, None].to(tl.int64) * N + (n % N)[None, :]
    total = tl.zeros((TILE_M, TILE_N), WIDE)
    for done in range(0, K, TILE_K):
        x = tl.load(left, mask=k[None, :] < K - done, other=0.0)
        y = tl.load(right, mask=k[:, None] < K - done, other=0.0)
        # float32 is computed without TF32.
        total = tl.dot(x, y, total, input_precision="ieee", out_dtype=WIDE)
        left += TILE_K
        right += TILE_K * N
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(c + m[:, None] * N + n[None, :], total, mask=inside)


def _configs(*rows: tuple[int, int, int, int, int]) -> list[Any]:
    return [
        triton.Config({"TILE_M": m, "TILE_N": n, "TILE_K": k, "GROUP": 8}, num_warps=warps, num_stages=stages)
        for m, n, k, warps, stages in rows
    ]


HALF = _configs(
    (128, 256, 64, 8, 3),
    (256, 128, 64, 8, 3),
    (128, 128, 64, 8, 4),
    (128, 128, 64, 4, 3),
    (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (64, 64, 64, 4, 4),
    (32, 64, 128, 4, 4),
)
SINGLE = _configs((128, 128, 16, 8, 3), (128, 64, 16, 4, 3), (64, 64, 32, 4, 3), (64, 32, 32, 4, 3), (32, 32, 32, 4, 3))
DOUBLE = _configs((64, 64, 16, 4, 3), (64, 32, 16, 4, 3), (32, 32, 16, 4, 3))

_TUNED = {
    kind: triton.autotune(configs, key=["M", "N", "K"])(matmul_kernel)
    for kind, configs in (("half", HALF), ("single", SINGLE), ("double", DOUBLE))
}
_KINDS = {torch.float32: "single", torch.float64: "double"}


def matmul(a: Any, b: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    wide = tl.float64 if a.dtype == torch.float64 else tl.float32

    def grid(tiles: Any) -> tuple[int]:
        return (triton.cdiv(m, tiles["TILE_M"]) * triton.cdiv(n, tiles["TILE_N"]),)

    _TUNED[_KINDS.get(a.dtype, "half")][grid](a, b, out, m, n, k, WIDE=wide)
    return out


# exp(x) over its sum along an axis. A row that fits into registers is read once; a longer one, or one that is not
# contiguous, twice: first for its maximum and its sum at once, then for the result.

_MOST_SOFTMAX_BYTES = 128 << 10
"""Bytes of a row in registers, in the precision that it is computed in: half of a multiprocessor's registers."""
_SOFTMAX_TILE = 1024
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
    if inner == 1 and n * (8 if wide == tl.float64 else 4) <= _MOST_SOFTMAX_BYTES:
        block = triton.next_power_of_2(n)
        rows = max(1, _SOFTMAX_TILE // block)
        grid = (triton.cdiv(outer, rows),)
        softmax_rows[grid](x, out, outer, n, wide, rows, block, num_warps=warps(rows * block))
    else:
        block, beside = (4096, 1) if inner == 1 else (64, 64)
        grid = (outer, triton.cdiv(inner, beside))
        softmax_online[grid](x, out, n, inner, wide, block, beside, num_warps=8)
    return out


def warps(elements: int) -> int:
    return int(min(16, max(4, triton.next_power_of_2(triton.cdiv(elements, _PER_WARP)))))


# The same kernels with a configuration: sizes of blocks, warps and stages are given.


def _launch_options(c: Any) -> dict[str, int]:
    return {"num_warps": c["num_warps"], "num_stages": c["num_stages"]}


def configured_matmul(a: Any, b: Any, c: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    wide = tl.float64 if a.dtype == torch.float64 else tl.float32
    grid = (triton.cdiv(m, c["TILE_M"]) * triton.cdiv(n, c["TILE_N"]),)
    tiles = {name: c[name] for name in ("TILE_M", "TILE_N", "TILE_K", "GROUP")}
    matmul_kernel[grid](a, b, out, m, n, k, WIDE=wide, **tiles, **_launch_options(c))
    return out


def configured_softmax(x: Any, c: Any) -> Any:
    out, n = torch.empty_like(x), x.shape[-1]
    count = x.numel() // n
    wide = tl.float64 if x.dtype == torch.float64 else tl.float32
    if c["BLOCK"]:
        softmax_online[(count, 1)](x, out, n, 1, wide, c["BLOCK"], 1, **_launch_options(c))
    else:
        grid = (triton.cdiv(count, c["ROWS"]),)
        block = triton.next_power_of_2(n)
        softmax_rows[grid](x, out, count, n, wide, c["ROWS"], block, **_launch_options(c))
    return out


def configured_layer_norm(x: Any, weight: Any, bias: Any, eps: float, c: Any) -> Any:
    return _configured_norm(layer_norm_rows, layer_norm_long, x, (weight, bias), eps, c)


def configured_rms_norm(x: Any, weight: Any, eps: float, c: Any) -> Any:
    return _configured_norm(rms_norm_rows, rms_norm_long, x, (weight,), eps, c)


def _configured_norm(whole: Any, pieces: Any, x: Any, vectors: tuple[Any, ...], eps: float, c: Any) -> Any:
    out, columns = torch.empty_like(x), x.shape[-1]
    count = x.numel() // columns
    wide = tl.float64 if x.dtype == torch.float64 else tl.float32
    if c["BLOCK"]:
        pieces[(count,)](x, *vectors, out, columns, eps, wide, c["BLOCK"], **_launch_options(c))
    else:
        grid, block = (triton.cdiv(count, c["ROWS"]),), triton.next_power_of_2(columns)
        whole[grid](x, *vectors, out, count, columns, eps, wide, c["ROWS"], block, **_launch_options(c))
    return out


# Element-wise operators that would be several kernels, as one.


@triton.jit
def sum_kernel(x, y, out, n, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def addcmul_kernel(x, y, z, out, n, VALUE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    product = tl.load(y + at, mask=inside).to(WIDE) * tl.load(z + at, mask=inside).to(WIDE)
    tl.store(out + at, tl.load(x + at, mask=inside).to(WIDE) + VALUE * product, mask=inside)


@triton.jit
def silu_kernel(x, out, n, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0.0).to(WIDE)
    tl.store(out + at, value / (1.0 + tl.exp(-value)), mask=inside)


@triton.jit
def gelu_kernel(x, out, n, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0.0).to(WIDE)
    tl.store(out + at, 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476)), mask=inside)


def configured_elements(kernel: Any, inputs: tuple[Any, ...], c: Any, **constants: Any) -> Any:
    out, n = torch.empty_like(inputs[0]), inputs[0].numel()
    wide = tl.float64 if out.dtype == torch.float64 else tl.float32
    grid = (triton.cdiv(n, c["BLOCK"]),)
    kernel[grid](*inputs, out, n, **constants, WIDE=wide, BLOCK=c["BLOCK"], **_launch_options(c))
    return out


# Attention of one head at a time: keys and values pass by in blocks, and the sums are corrected whenever a larger
# maximum appears.


@triton.jit
def attention_kernel(
    q,
    k,
    v,
    out,
    heads,
    shared,
    queries,
    keys,
    SCALE: tl.constexpr,
    CAUSAL: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """q is [batch x heads, queries, DIM]; k and v have one head for `shared` heads of q."""
    head = tl.program_id(1).to(tl.int64)
    of_keys = head // heads * (heads // shared) + head % heads // shared
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column, inside = tl.arange(0, DIM), tl.arange(0, BLOCK_N)
    here = row[:, None] < queries
    query = tl.load(q + head * queries * DIM + row[:, None] * DIM + column[None, :], mask=here, other=0.0)
    largest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    result = tl.zeros([BLOCK_M, DIM], tl.float32)
    # With fewer queries than keys, torch aligns both at their beginning.
    last = tl.minimum(keys, tl.program_id(0) * BLOCK_M + BLOCK_M) if CAUSAL else keys
    for first in range(0, last, BLOCK_N):
        at = first + inside
        there = of_keys * keys * DIM + at[:, None] * DIM + column[None, :]
        key = tl.load(k + there, mask=at[:, None] < keys, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * SCALE
        seen = at[None, :] < keys
        if CAUSAL:
            seen = seen & (at[None, :] <= row[:, None])
        score = tl.where(seen, score, float("-inf"))
        larger = tl.maximum(largest, tl.max(score, axis=1))
        power = tl.exp(score - larger[:, None])
        correction = tl.exp(largest - larger)
        total = total * correction + tl.sum(power, axis=1)
        value = tl.load(v + there, mask=at[:, None] < keys, other=0.0)
        result = result * correction[:, None] + tl.dot(power.to(value.dtype), value, input_precision="ieee")
        largest = larger
    place = out + head * queries * DIM + row[:, None] * DIM + column[None, :]
    tl.store(place, result / total[:, None], mask=here)


def configured_attention(q: Any, k: Any, v: Any, causal: bool, c: Any) -> Any:
    batch, heads, queries, dim = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(queries, c["BLOCK_M"]), batch * heads)
    attention_kernel[grid](
        q, k, v, out, heads, heads // k.shape[1], queries, k.shape[2], SCALE=dim**-0.5, CAUSAL=causal, DIM=dim,
        BLOCK_M=c["BLOCK_M"], BLOCK_N=c["BLOCK_N"], **_launch_options(c),
    )  # fmt: skip
    return out
