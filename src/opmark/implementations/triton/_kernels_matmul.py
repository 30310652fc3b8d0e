# mypy: ignore-errors
"""A matrix product in tiles, in an order that reuses operands from the cache, tuned over a few tile sizes."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


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
