"""Loops of tensor expressions on a GPU, arranged by a configuration: blocks, threads, shared memory, registers.

OpenCL, Vulkan, ROCm and the other GPUs of TVM take the same schedules."""

from __future__ import annotations

from typing import Any

from opmark.frameworks.tvm.knobs import inner
from opmark.frameworks.tvm.operators import Arrange
from opmark.frameworks.tvm.schedules.cpu import has_stage, own_loops, stages_in_order
from opmark.plugin import Configuration, Params


def contraction(row: int, column: int, *, fused: bool = False) -> Arrange:
    """Return the schedule of sums of products, whose rows and columns are these loops of stage `acc`. `fused`: the last
    two loops are run through as one first."""

    def arrange(s: Any, p: Params, c: Configuration) -> None:
        acc = s.get_sblock("acc")
        if has_stage(s, "out"):
            s.set_scope(acc, 0, "local")
            end = s.get_sblock("out")
        else:
            end = s.cache_write(acc, 0, "local")
        operands = [s.cache_read(acc, i, "shared") for i in range(2)] if c["shared"] else []
        if has_stage(s, "pad"):
            s.compute_inline(s.get_sblock("pad"))
        loops, sums = own_loops(s, acc)
        if fused:
            loops[-2:] = [s.fuse(*loops[-2:])]
        others = [loop for i, loop in enumerate(loops) if i not in (row, column)]
        block_m, thread_m, m = s.split(loops[row], [None, *_tail(c, "tile_m")])
        block_n, thread_n, n = s.split(loops[column], [None, *_tail(c, "tile_n")])
        along, k = s.split(sums[0], [None, inner(c, "tile_k")])
        s.reorder(*others, block_m, block_n, thread_m, thread_n, along, k, *sums[1:], m, n)
        if others:
            s.bind(s.fuse(*others), "blockIdx.z")
        places = {"blockIdx.y": block_m, "blockIdx.x": block_n, "threadIdx.y": thread_m, "threadIdx.x": thread_n}
        for place, loop in places.items():
            s.bind(loop, place)
        s.reverse_compute_at(end, thread_n, preserve_unit_loops=True)
        for operand in operands:
            s.compute_at(operand, along)
            copied = s.fuse(*s.get_loops(operand)[-_axes(s, operand) :])
            down, right = _tail(c, "tile_m")[0], _tail(c, "tile_n")[0]
            _, y, x, vector = s.split(copied, [None, down, right, int(str(c["fetch"]))])
            s.bind(y, "threadIdx.y")
            s.bind(x, "threadIdx.x")
            s.vectorize(vector)
        _unroll(s, along, c)
        s.decompose_reduction(acc, along)

    return arrange


def _tail(c: Configuration, name: str) -> tuple[int, ...]:
    value = c[name]
    assert isinstance(value, tuple)
    return value[1:]


def _axes(s: Any, block: Any) -> int:
    """Return the number of loops of a stage that was moved under another loop: unit loops are gone."""
    around = 5 + sum(str(s.get(loop).thread_binding).find("blockIdx.z") >= 0 for loop in s.get_loops(block))
    return len(s.get_loops(block)) - around


def _unroll(s: Any, loop: Any, c: Configuration) -> None:
    if c["unroll"]:
        s.annotate(loop, "pragma_auto_unroll_max_step", c["unroll"])
        s.annotate(loop, "pragma_unroll_explicit", 0)


def rows(*reduced: str, power: str = "", elements: bool = True) -> Arrange:
    """Return the schedule of stages that reduce the last axis, as that of CPUs: threads share a row, and exchange their
    parts of a sum or a maximum."""

    def arrange(s: Any, p: Params, c: Configuration) -> None:
        keeps = bool(power) and c["exp_at"] == "row"
        if power and not keeps:
            s.compute_inline(power)
        out, threads = s.get_sblock("out"), int(str(c["block_threads"]))
        loops = list(s.get_loops(out))
        whole = loops[:-1] if elements else loops
        row = s.fuse(*whole) if whole else s.add_unit_loop(loops[0] if loops else out)
        outer, each = s.split(row, [None, int(str(c["rows"]))])
        s.bind(outer, "blockIdx.x")
        s.bind(each, "threadIdx.y")
        for name in reversed(stages_in_order(reduced, power if keeps else "")):
            s.compute_at(name, each, preserve_unit_loops=True)
            s.set_scope(name, 0, "shared")
        for name in [*reduced, *([power] if keeps else []), *(["out"] if elements else [])]:
            steps, lane = s.split(s.get_loops(name)[-1], [None, threads])
            s.bind(lane, "threadIdx.x")
            _unroll(s, steps, c)

    return arrange


def elements(s: Any, p: Params, c: Configuration) -> None:
    """Compute a result per thread, or a few: pools, depthwise convolutions, reductions of an axis that is not last."""
    if has_stage(s, "pad"):
        s.compute_inline(s.get_sblock("pad"))
    acc, finishes = s.get_sblock("acc"), has_stage(s, "out")
    last = s.get_sblock("out") if finishes else acc
    results, sums = own_loops(s, last)
    steps = int(str(c["per_thread"]))
    block, thread, each = s.split(s.fuse(*results), [None, int(str(c["block_threads"])), steps])
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    if finishes:
        s.compute_at(acc, each, preserve_unit_loops=True)
        s.set_scope(acc, 0, "local")
    else:
        s.decompose_reduction(acc, sums[0])
    _unroll(s, each, c)
