"""Loops of tensor expressions on a CPU, arranged by a configuration. The knobs are those of `knobs.py`.

A stage that is only added up is decomposed last: threads and vectors are bound while TVM still knows it as a sum.
"""

from __future__ import annotations

from typing import Any

from opmark.frameworks.tvm.knobs import inner
from opmark.frameworks.tvm.library import tvm
from opmark.frameworks.tvm.operators import Arrange
from opmark.plugin import Configuration, Params

_DATA_PARALLEL = 0
"""TVM's number for a loop whose steps do not depend on each other."""


def is_data_parallel(variable: Any) -> bool:
    """Return whether steps of a loop do not depend on each other; a sum's do."""
    return int(variable.iter_type) == _DATA_PARALLEL


def has_stage(schedule: Any, name: str) -> bool:
    """Return whether an expression has a stage of this name: a pad, a cast at the end."""
    try:
        schedule.get_sblock(name)
    except tvm.s_tir.ScheduleError:
        return False
    return True


def contraction(row: int, column: int) -> Arrange:
    """Return the schedule of sums of products, whose rows and columns are these loops of stage `acc`."""

    def arrange(s: Any, p: Params, c: Configuration) -> None:
        acc = s.get_sblock("acc")
        casts = has_stage(s, "out")
        if c.get("pack"):
            _pack(s, acc, inner(c, "tile_n"))
        end = s.get_sblock("out") if casts else s.cache_write(acc, 0, "local") if c["accumulate_apart"] else None
        if casts:
            s.set_scope(acc, 0, "local")
        if has_stage(s, "pad") and c["pad_at"] == "inline":
            s.compute_inline(s.get_sblock("pad"))
        loops, sums = own_loops(s, acc)
        at = column
        if c.get("fuse"):
            loops[column - 1 :] = [s.fuse(*loops[column - 1 :])]
            at = column - 1
        others = [loop for i, loop in enumerate(loops) if i not in (row, at)]
        rows, m = s.split(loops[row], [None, inner(c, "tile_m")])
        columns, n = s.split(loops[at], [None, inner(c, "tile_n")])
        along, k = s.split(sums[0], [None, inner(c, "tile_k")])
        tiles = [rows, columns] if c["outer_order"] == "mn" else [columns, rows]
        window = [k, *sums[1:]]
        s.reorder(*others, *tiles, along, *([*window, m] if c["inner_order"] == "kmn" else [m, *window]), n)
        if end is not None:
            s.reverse_compute_at(end, tiles[-1], preserve_unit_loops=True)
            *_, m_end, n_end = s.get_loops(end)
            if c["vectorize"]:
                s.vectorize(n_end)
            if c["unroll"] != "none":
                s.unroll(m_end)
        if c["vectorize"]:
            s.vectorize(n)
        if c["unroll"] != "none":
            s.unroll(m)
        if c["unroll"] == "rows+k":
            s.unroll(k)
        outermost = _share(s, c["parallel"], others, tiles)
        if has_stage(s, "pad"):
            _place_pad(s, outermost if c["pad_at"] == "rows" else None, c)
        s.decompose_reduction(acc, along)

    return arrange


def own_loops(s: Any, block: Any) -> tuple[list[Any], list[Any]]:
    """Return the loops over the result of a stage that was not moved yet, and those over what it reduces."""
    loops = list(s.get_loops(block))
    results = sum(is_data_parallel(one) for one in s.get(block).iter_vars)
    return loops[:results], loops[results:]


def _share(s: Any, how: object, others: list[Any], tiles: list[Any]) -> Any:
    """Give loops to threads, and return the outermost loop."""
    if how == "none":
        return [*others, *tiles][0]
    together = [*others, *tiles] if how == "fused" else others or tiles[:1]
    outermost = s.fuse(*together) if len(together) > 1 else together[0]
    s.parallel(outermost)
    return outermost


def _place_pad(s: Any, at: Any, c: Configuration) -> None:
    """Compute the padded image inside a loop, or before everything else."""
    pad = s.get_sblock("pad")
    if at is not None:
        s.compute_at(pad, at)
    loops = s.get_loops(pad)
    if c["vectorize"]:
        s.vectorize(loops[-1])
    if at is None and c["parallel"] != "none":
        s.parallel(s.fuse(*loops[:-1]))


def _pack(s: Any, acc: Any, width: int) -> None:
    """Copy the right operand into strips as wide as a tile, so that a tile reads memory from front to back."""
    packed = s.cache_read(acc, 1, "global")

    def lay(*at: Any) -> tuple[Any, ...]:
        *batch, k, n = at
        return (*batch, n // width, k, n % width)

    s.transform_layout(acc, ("read", 1), lay)
    *batch, k, n = s.get_loops(packed)
    strips, lanes = s.split(n, [None, width])
    s.reorder(*batch, strips, k, lanes)
    s.vectorize(lanes)
    s.parallel(s.fuse(*batch, strips))


# Along an axis.


def rows(*reduced: str, power: str = "", elements: bool = True) -> Arrange:
    """Return the schedule of stages that reduce the last axis, in this order, and of a last stage `out`, which has all
    elements or one per row. `power`: a stage of all elements before the last reduction, which may be computed twice."""

    def arrange(s: Any, p: Params, c: Configuration) -> None:
        if power and c["exp_at"] == "inline":
            s.compute_inline(power)
        partial = {name: _reduce_side_by_side(s, name, int(str(c["lanes"]))) for name in reduced}
        out = s.get_sblock("out")
        loops = list(s.get_loops(out))
        whole = loops[:-1] if elements else loops
        row = s.fuse(*whole) if whole else s.add_unit_loop(loops[0] if loops else out)
        outer, each = s.split(row, [None, inner(c, "tile_rows")])
        if c["parallel"]:
            s.parallel(outer)
        for name in reversed(stages_in_order(reduced, power if power and c["exp_at"] == "row" else "")):
            for block in (s.get_sblock(name), partial.get(name)):
                if block is not None:
                    s.compute_at(block, each)
        for block in (one for one in partial.values() if one is not None):
            *_, lanes, along = s.get_loops(block)
            s.reorder(along, lanes)
            s.vectorize(lanes)
            s.decompose_reduction(block, along)
        if elements:
            for name in ("out", power) if power and c["exp_at"] == "row" else ("out",):
                _, vector = s.split(s.get_loops(name)[-1], [None, inner(c, "tile_columns")])
                s.vectorize(vector)
        if c["unroll"]:
            s.annotate(each, "pragma_auto_unroll_max_step", c["unroll"])
            s.annotate(each, "pragma_unroll_explicit", 1)

    return arrange


def stages_in_order(reduced: tuple[str, ...], power: str) -> list[str]:
    """Return the stages in the order in which they are computed: powers come before their sum, which is last."""
    return [*reduced[:-1], *([power] if power else []), reduced[-1]]


def _reduce_side_by_side(s: Any, name: str, lanes: int) -> Any:
    """Reduce every n-th element apart, and these results to one. Return the stage of the parts; None for one lane."""
    if lanes == 1:
        return None
    results, (along,) = own_loops(s, s.get_sblock(name))
    _, side = s.split(along, [None, lanes])
    return s.rfactor(side, len(results))


def columns(s: Any, p: Params, c: Configuration) -> None:
    """Reduce an axis that is not the last: elements side by side are a vector."""
    acc, out = s.get_sblock("acc"), s.get_sblock("out")
    *others, column = s.get_loops(out)
    outer, side = s.split(column, [None, inner(c, "tile_columns")])
    s.compute_at(acc, outer, preserve_unit_loops=True)
    s.set_scope(acc, 0, "local")
    *_, lane, along = s.get_loops(acc)
    first, k = s.split(along, [None, inner(c, "tile_k")])
    s.reorder(first, k, lane)
    if c["vectorize"]:
        s.vectorize(lane)
        s.vectorize(side)
    if c["unroll"]:
        s.unroll(k)
    _share(s, c["parallel"], others, [outer])
    s.decompose_reduction(acc, first)


def pool(s: Any, p: Params, c: Configuration) -> None:
    acc = s.get_sblock("acc")
    averages = has_stage(s, "out")
    if averages:
        s.set_scope(acc, 0, "local")
    if (pads := has_stage(s, "pad")) and c["pad_at"] == "inline":
        s.compute_inline(s.get_sblock("pad"))
    (batch, channel, row, column), window = own_loops(s, acc)
    rows_outer, rows_inner = s.split(row, [None, inner(c, "tile_h")])
    columns_outer, lanes = s.split(column, [None, inner(c, "tile_w")])
    tile = [*window, lanes] if c["order"] == "window-outside" else [lanes, *window]
    s.reorder(batch, channel, rows_outer, rows_inner, columns_outer, *tile)
    if averages:
        s.reverse_compute_at(s.get_sblock("out"), columns_outer, preserve_unit_loops=True)
        if c["vectorize"]:
            s.vectorize(s.get_loops(s.get_sblock("out"))[-1])
    if c["vectorize"]:
        s.vectorize(lanes)
    if c["unroll"]:
        for loop in window:
            s.unroll(loop)
    together = {"none": [batch, channel], "planes": [batch, channel], "fused": [batch, channel, rows_outer]}
    outermost = s.fuse(*together[str(c["parallel"])])
    if c["parallel"] != "none":
        s.parallel(outermost)
    if pads and c["pad_at"] != "inline":
        _place_pad(s, outermost if c["pad_at"] == "plane" else None, c)
    s.decompose_reduction(acc, tile[0])
