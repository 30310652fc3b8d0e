"""Knobs of Triton kernels: sizes of blocks, warps, stages of the software pipeline, order of the tiles. Nothing here
imports Triton."""

from __future__ import annotations

from math import prod

from opmark.errors import Unsupported
from opmark.plugin import Configuration, Knob, Params, Space, SpaceRule
from opmark.schema.tensor import sizeof

_SHARED_BYTES = 224 << 10
"""Shared memory of a block on recent data-centre GPUs; where there is less, Triton refuses the configuration."""
_MOST_ACCUMULATORS = 512
"""Numbers of a tile per thread: more do not fit into registers."""
_WARP = 32


def _choice(name: str, values: tuple[int, ...], default: int, summary: str) -> Knob:
    return Knob(name, values, "choice", default, summary)


def _number(c: Configuration, name: str) -> int:
    value = c[name]
    assert isinstance(value, int)
    return value


_WARPS = "warps of a program"
_STAGES = "stages of the pipeline that loads operands"


def matmul(p: Params) -> Space:
    """Defaults are those that fit most sizes on a recent GPU."""
    size = sizeof(p["dtype"])
    tile, deep = (128, 64) if size <= 2 else (64, 32) if size == 4 else (32, 16)
    return Space(
        (
            _choice("TILE_M", (16, 32, 64, 128, 256), tile, "rows of a tile"),
            _choice("TILE_N", (16, 32, 64, 128, 256), tile, "columns of a tile"),
            _choice("TILE_K", (16, 32, 64, 128), deep, "steps of the sum at a time"),
            _choice("GROUP", (1, 4, 8, 16), 8, "tiles that are computed below each other before the next column"),
            _choice("num_warps", (2, 4, 8, 16), 4, _WARPS),
            _choice("num_stages", (1, 2, 3, 4, 5), 3, _STAGES),
        ),
        (
            SpaceRule(
                f"keep at most {_MOST_ACCUMULATORS} sums in a thread, and one at least",
                lambda c: 1
                <= _number(c, "TILE_M") * _number(c, "TILE_N") / (_number(c, "num_warps") * _WARP)
                <= _MOST_ACCUMULATORS,
            ),
            SpaceRule(
                f"take at most {_SHARED_BYTES} bytes of shared memory",
                lambda c: (_number(c, "TILE_M") + _number(c, "TILE_N")) * _number(c, "TILE_K") * size
                * max(1, _number(c, "num_stages") - 1) <= _SHARED_BYTES,
            ),
        ),
    )  # fmt: skip


def rows(p: Params) -> Space:
    """A softmax or a norm along the last axis: rows as a whole, several per program, or long ones in pieces."""
    shape = p["shape"]
    if p.get("axis", -1) % len(shape) != len(shape) - 1:
        raise Unsupported("the kernel with knobs works along the last axis")
    length = 1 << (shape[-1] - 1).bit_length()
    size = 8 if p["dtype"] == "float64" else 4
    most = (128 << 10) // size
    whole = length <= most
    blocks = (*((0,) if whole else ()), *(n for n in (1024, 2048, 4096, 8192) if n < 2 * length or not whole))
    usual = max(1, 1024 // length)
    return Space(
        (
            _choice("BLOCK", blocks, blocks[0] if whole else 4096, "elements of a piece; 0: the whole row at once"),
            _choice("ROWS", (1, 2, 4, 8, 16, 32), min(32, 1 << (usual.bit_length() - 1)) if whole else 1,
                    "rows of a program"),
            _choice("num_warps", (1, 2, 4, 8, 16), 4, _WARPS),
            _choice("num_stages", (1, 2, 3), 2, _STAGES),
        ),
        (
            SpaceRule("have one row per program where rows are cut in pieces",
                      lambda c: c["BLOCK"] == 0 or c["ROWS"] == 1),
            SpaceRule(f"have at most {most} elements in a program",
                      lambda c: c["BLOCK"] != 0 or _number(c, "ROWS") * length <= most),
        ),
    )  # fmt: skip


def elements(p: Params) -> Space:
    return Space(
        (
            _choice("BLOCK", (256, 512, 1024, 2048, 4096, 8192), 1024, "elements of a program"),
            _choice("num_warps", (1, 2, 4, 8, 16), 4, _WARPS),
            _choice("num_stages", (1, 2, 3), 1, _STAGES),
        ),
        (SpaceRule("give every thread an element", lambda c: _number(c, "BLOCK") >= _number(c, "num_warps") * _WARP),),
    )


def attention(p: Params) -> Space:
    dim, size = p["head_dim"], sizeof(p["dtype"])
    if size > 4 or dim & (dim - 1) or not 16 <= dim <= 256:
        raise Unsupported("the attention kernel takes heads of 16, 32, 64, 128 or 256 in at most 32 bits")
    return Space(
        (
            _choice("BLOCK_M", (16, 32, 64, 128), 64, "queries of a program"),
            _choice("BLOCK_N", (16, 32, 64, 128), 32, "keys at a time"),
            _choice("num_warps", (2, 4, 8), 4, _WARPS),
            _choice("num_stages", (1, 2, 3, 4), 2, _STAGES),
        ),
        (
            SpaceRule(
                f"take at most {_SHARED_BYTES} bytes of shared memory",
                lambda c: (
                    (_number(c, "BLOCK_M") + 2 * _number(c, "BLOCK_N") * _number(c, "num_stages")) * dim * size
                    <= _SHARED_BYTES
                ),
            ),
            SpaceRule(
                f"keep at most {_MOST_ACCUMULATORS} numbers in a thread",
                lambda c: (
                    prod((_number(c, "BLOCK_M"), max(dim, _number(c, "BLOCK_N"))))
                    <= _MOST_ACCUMULATORS * _WARP * _number(c, "num_warps")
                ),
            ),
        ),
    )
