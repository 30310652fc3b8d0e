"""The knobs of TVM schedules, on CPUs and GPUs: split, tile, reorder, compute_at, unroll, vectorize, parallel, fuse.
Nothing here imports TVM, so that spaces are exported where it is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from opmark.plugin import Configuration, Knob, Params, Space, SpaceRule
from opmark.plugin.space import splits

MOST_UNROLLED = 256
"""Vector operations in the unrolled body of a loop: above, compiling takes minutes and code leaves the cache."""
SHARED_BYTES = 48 << 10
"""Shared memory of a thread block that every NVIDIA GPU has."""
LEAST_THREADS, MOST_THREADS = 32, 1024
"""Threads of a block."""
_FEW = 3
"""A size with fewer divisors than this, such as a prime, is also split into powers of two, with a guard at the end."""


def tilings(extent: int, most: int) -> tuple[tuple[int, int], ...]:
    """Return the ways to split a loop in two, (outer, inner), with an inner loop of at most `most`. A size with hardly
    any divisors is also split into powers of two, and the last tile is then partly empty."""
    found = {inner: outer for outer, inner in splits(extent, 2, most)}
    if len(found) < _FEW:
        powers = (1 << i for i in range(1, most.bit_length()) if 1 << i < extent)
        found |= {n: -(-extent // n) for n in powers if n <= most}
    return tuple((found[inner], inner) for inner in sorted(found))


def nearest_tiling(tilings: Sequence[tuple[int, int]], wish: int) -> tuple[int, int]:
    """Return the tiling whose inner loop is the longest that is not longer than wished for."""
    return max((one for one in tilings if one[1] <= wish), key=lambda one: one[1])


def split_knob(name: str, extent: int, most: int, wish: int, summary: str) -> Knob:
    values = tilings(extent, most)
    return Knob(name, values, "split", nearest_tiling(values, wish), summary)


def inner(configuration: Configuration, name: str) -> int:
    """Return the length of the innermost loop that a split makes."""
    value = configuration[name]
    assert isinstance(value, tuple)
    return value[-1]


def flag(name: str, summary: str, *, default: bool) -> Knob:
    return Knob(name, (default, not default), "flag", default, summary)


def window_sizes(p: Params) -> tuple[int, ...]:
    """Return the sizes of the image that a window gives, as it moves over a padded one."""
    return tuple(
        (n + 2 * p["padding"] - p.get("dilation", 1) * (window - 1) - 1) // p["stride"] + 1
        for n, window in zip(p["image"], p["kernel"], strict=True)
    )


# Products and convolutions: every output element is a sum of products.


@dataclass(frozen=True)
class ContractionShape:
    """The loops of a sum of products that are tiled: rows and columns of the result, and the sum."""

    rows: int
    columns: int
    summed: int
    itemsize: int = 4
    packs: bool = False
    """Whether the right operand is a matrix that can be laid out in strips as wide as a tile."""
    pads: bool = False
    """Whether an image is padded first."""
    width: int = 0
    """Width of the image, if its two axes can be run through as one: `columns` then counts all its elements."""


PAD_AT = Knob(
    "pad_at", ("root", "rows", "inline"), "choice", "root", "where the padded image is computed: before, per "
    "row of the image (compute_at), or at every access (compute_inline)",
)  # fmt: skip


def contraction_cpu(of: ContractionShape) -> Space:
    knobs = [
        split_knob("tile_m", of.rows, 32, 8, "rows of the result: loops (outer, inner)"),
        split_knob("tile_n", of.columns, 128, 32, "columns of the result: loops (outer, inner)"),
        split_knob("tile_k", of.summed, 64, 8, "the sum: loops (outer, inner)"),
        Knob("outer_order", ("mn", "nm"), "order", "mn", "order of the tiles"),
        Knob("inner_order", ("kmn", "mkn"), "order", "kmn", "order of the loops inside a tile"),
        flag("vectorize", "columns of a tile as vectors", default=True),
        Knob("unroll", ("none", "rows", "rows+k"), "choice", "rows", "loops inside a tile that are written out"),
        Knob("parallel", ("none", "outer", "fused"), "choice", "outer", "loops that threads share: none, the outer-"
             "most, or all over tiles as one"),
        flag("accumulate_apart", "sums in a buffer of their own, which is written at the end of a tile (cache_write, "
             "reverse_compute_at)", default=True),
    ]  # fmt: skip
    if of.packs:
        even = of.columns % nearest_tiling(tilings(of.columns, 128), 32)[1] == 0
        knobs.append(flag("pack", "lay the right operand out in strips as wide as a tile first", default=even))
    if of.pads:
        knobs.append(PAD_AT)
    rules = [SpaceRule(f"write out at most {MOST_UNROLLED} operations", _unrolls_little)]
    if of.packs:
        strips = "pack strips that divide the columns"
        rules.append(SpaceRule(strips, lambda c: not c["pack"] or _divides(c, of.columns)))
    if of.width:
        knobs.append(flag("fuse", "run through rows and columns of the image as one", default=True))
        apart = "have tiles that divide the width of the image, where its rows are apart"
        rules.append(SpaceRule(apart, lambda c: bool(c["fuse"]) or _divides(c, of.width)))
    return Space(tuple(knobs), tuple(rules))


def _divides(c: Configuration, columns: int) -> bool:
    return columns % inner(c, "tile_n") == 0


def _unrolls_little(c: Configuration) -> bool:
    lines = {"none": 1, "rows": inner(c, "tile_m"), "rows+k": inner(c, "tile_m") * inner(c, "tile_k")}[str(c["unroll"])]
    return lines * (-(-inner(c, "tile_n") // 16) if c["vectorize"] else 1) <= MOST_UNROLLED


def contraction_cuda(of: ContractionShape) -> Space:
    """Blocks and threads over rows and columns; a thread computes a small tile in registers."""
    rows, columns = gpu_splits(of.rows), gpu_splits(of.columns)
    knobs = (
        Knob("tile_m", rows, "split", wished_gpu_split(rows, 8, 4), "rows: (blocks, threads, per thread)"),
        Knob("tile_n", columns, "split", wished_gpu_split(columns, 16, 4), "columns: (blocks, threads, per thread)"),
        split_knob("tile_k", of.summed, 64, 16, "the sum: loops (outer, inner)"),
        flag("shared", "operands of a block in shared memory (cache_read, compute_at)", default=True),
        Knob("fetch", (1, 2, 4), "choice", 1, "elements that a thread copies to shared memory at a time (vectorize)"),
        Knob("unroll", (0, 16, 64, 512), "choice", 64, "longest body that is written out"),
    )

    def threads(c: Configuration) -> int:
        return int(c["tile_m"][1] * c["tile_n"][1])  # type: ignore[index,operator]

    def tile(c: Configuration, name: str) -> int:
        value = c[name]
        assert isinstance(value, tuple)
        return prod(value[1:])

    def shared_bytes(c: Configuration) -> int:
        return (tile(c, "tile_m") + tile(c, "tile_n")) * inner(c, "tile_k") * of.itemsize if c["shared"] else 0

    most = min(LEAST_THREADS, of.rows * of.columns)  # a small case has no block of so many threads
    return Space(knobs, (
        SpaceRule(f"have at most {MOST_THREADS} threads in a block", lambda c: threads(c) <= MOST_THREADS),
        SpaceRule(f"have at least {LEAST_THREADS} threads in a block, where there are so many elements",
                  lambda c: threads(c) >= _reachable(rows, columns, most)),
        SpaceRule("keep at most 64 sums in a thread", lambda c: inner(c, "tile_m") * inner(c, "tile_n") <= 64),
        SpaceRule(f"take at most {SHARED_BYTES} bytes of shared memory", lambda c: shared_bytes(c) <= SHARED_BYTES),
    ))  # fmt: skip


def gpu_splits(extent: int, most_threads: int = 64, most_inner: int = 8) -> tuple[tuple[int, ...], ...]:
    """Return splits into (blocks, threads, elements per thread). The number of blocks is rounded up where a size has
    hardly any divisors."""
    found = {
        (outer, threads, each): None
        for each_outer, each in tilings(extent, most_inner)
        for outer, threads in tilings(each_outer, most_threads)
    }
    return tuple(found)


def wished_gpu_split(values: Sequence[tuple[int, ...]], threads: int, each: int) -> tuple[int, ...]:
    """Return the split with the most elements in a block that exceeds neither number."""
    return max((one for one in values if one[1] <= threads and one[2] <= each), key=lambda one: (one[1] * one[2], one))


def _reachable(rows: Sequence[tuple[int, ...]], columns: Sequence[tuple[int, ...]], wish: int) -> int:
    """Return the least number of threads to ask for: fewer than wished for where the sizes do not allow more."""
    most = max(one[1] for one in rows) * max(one[1] for one in columns)
    return min(wish, most, wished_gpu_split(rows, 8, 4)[1] * wished_gpu_split(columns, 16, 4)[1])


# Rows: reductions along the last axis, and what is computed from them for every element.


def rows_cpu(
    rows: int, length: int, *, alone: bool, exponential: bool = False, polynomial: bool = True, elements: bool = True
) -> Space:
    """`alone`: there is no other axis. `exponential`: powers are computed, as in a softmax; `polynomial`: in a type for
    which a polynomial is exact enough. `elements`: the result has as many elements as the input, else one per row."""
    # TVM cannot split the sum of a result that has no axis.
    lanes = tuple(n for n in (1, 4, 8, 16, 32, 64) if n == 1 or (n < length and length % n == 0 and not alone))
    knobs = [
        split_knob("tile_rows", rows, 64, 8, "rows: loops (outer, inner); threads share the outer one"),
        flag("parallel", "threads share the rows", default=True),
        Knob("lanes", lanes, "choice", max(n for n in lanes if n <= 16), "partial sums or maxima that are kept side by "
             "side as a vector (split, rfactor)"),
        Knob("unroll", (0, 4, 16), "choice", 0, "steps of the innermost loops that are written out"),
    ]  # fmt: skip
    if elements:
        knobs.append(split_knob("tile_columns", length, 128, 16, "elements of a row: the inner loop is a vector"))
    if exponential and polynomial:
        knobs.append(Knob("exp", ("library", "polynomial"), "choice", "polynomial", "exp from the C library, one "
                          "element at a time, or as a polynomial that can be a vector"))  # fmt: skip
    if exponential:
        knobs.append(Knob("exp_at", ("row", "inline"), "choice", "row", "powers are kept per row (compute_at) or "
                          "computed twice (compute_inline)"))  # fmt: skip
    return Space(tuple(knobs))


def rows_cuda(rows: int, length: int, *, exponential: bool = False) -> Space:
    threads = tuple(n for n in (32, 64, 128, 256, 512, 1024) if n < 2 * max(32, length))
    knobs = [
        Knob("block_threads", threads, "choice", max(n for n in threads if n <= 256), "threads that share a row"),
        Knob("rows", tuple(n for n in (1, 2, 4, 8) if n == 1 or rows % n == 0), "choice", 1, "rows of a thread block"),
        Knob("unroll", (0, 4, 16, 64), "choice", 16, "longest body that is written out"),
    ]
    if exponential:
        knobs.append(Knob("exp_at", ("row", "inline"), "choice", "inline", "powers are kept in shared memory "
                          "(compute_at) or computed twice (compute_inline)"))  # fmt: skip
    rules = [
        SpaceRule(
            f"have at most {MOST_THREADS} threads in a block",
            lambda c: int(c["block_threads"]) * int(c["rows"]) <= MOST_THREADS,  # type: ignore[arg-type]
        )
    ]
    if exponential:
        rules.append(
            SpaceRule(
                f"take at most {SHARED_BYTES} bytes of shared memory",
                lambda c: c["exp_at"] == "inline" or int(c["rows"]) * length * 4 <= SHARED_BYTES,  # type: ignore[arg-type]
            )
        )
    return Space(tuple(knobs), tuple(rules))


def columns_cpu(length: int, columns: int) -> Space:
    """A reduction along an axis that is not the last: elements side by side are reduced at once."""
    return Space((
        split_knob("tile_columns", columns, 256, 64, "elements side by side: loops (outer, inner)"),
        split_knob("tile_k", length, 32, 4, "the reduced axis: loops (outer, inner)"),
        flag("vectorize", "elements side by side as vectors", default=True),
        flag("unroll", "write out the inner loop over the reduced axis", default=False),
        Knob("parallel", ("none", "outer", "fused"), "choice", "fused", "loops that threads share"),
    ))  # fmt: skip


# Pools: a reduction over a window at every place of an image.


def pool_cpu(height: int, width: int, *, pads: bool) -> Space:
    pad_at = Knob("pad_at", ("inline", "root", "plane"), "choice", "inline", "where the padded image is computed: at "
                  "every access, before, or per plane (compute_at)")  # fmt: skip
    return Space((
        split_knob("tile_h", height, 16, 1, "rows of the result: loops (outer, inner)"),
        split_knob("tile_w", width, 64, 16, "columns of the result: loops (outer, inner)"),
        flag("vectorize", "columns of a tile as vectors", default=True),
        flag("unroll", "write out the loops over the window", default=True),
        Knob("order", ("window-inside", "window-outside"), "order", "window-outside", "loops over the window inside "
             "or outside of those over a tile"),
        Knob("parallel", ("none", "planes", "fused"), "choice", "planes", "loops that threads share: planes of the "
             "image, or planes and rows as one"),
        *([pad_at] if pads else []),
    ))  # fmt: skip


def elements_cuda(elements: int) -> Space:
    """One result per thread or a few, as for pools and reductions along an axis that is not the last."""
    threads = (32, 64, 128, 256, 512, 1024)
    return Space((
        Knob("block_threads", threads, "choice", 256, "threads of a block"),
        Knob("per_thread", tuple(n for n in (1, 2, 4, 8) if n == 1 or elements >= n * 32), "choice", 1,
             "results of a thread"),
        Knob("unroll", (0, 16, 64), "choice", 16, "longest body that is written out"),
    ))  # fmt: skip
