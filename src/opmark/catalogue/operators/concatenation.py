"""Joining and splitting of tensors: concat, stack, split, chunk, unbind, ..."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import AXIS_EXISTS, EXACT, SHAPE, elements, reference_in_numpy
from opmark.catalogue.operators._builders import torch
from opmark.catalogue.operators._layout import (
    ADDED_UP,
    ANY,
    AXIS,
    NOTHING,
    call_with,
    data,
    moving_operator,
    view_operator,
)
from opmark.plugin import Implementation, Launch, Operator, ParamRule, Params
from opmark.plugin.param import dtype, integer, size
from opmark.plugin.registry import resolve
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

PRESETS = {
    "small": {"shape": [100, 100]},
    "typical": {"shape": [1024, 1024]},
    "large": {"shape": [8192, 4096]},
}
COUNT = size("count", "number of tensors", 3)


def _several(p: Params) -> dict[str, TensorSpec]:
    """Return tensors of one shape, named x0, x1, ..."""
    return {f"x{i}": data(p["shape"], p["dtype"]) for i in range(p["count"])}


def _call_list(path: str, arguments: Callable[[Params], tuple[Any, ...]]) -> Implementation:
    """Make an implementation that calls path([x0, x1, ...], *arguments)."""

    def build(p: Params, **inputs: Any) -> Launch:
        return partial(resolve(path), list(inputs.values()), *arguments(p))

    return Implementation(path.split(".", 1)[0], build, path=path)


def _join_operator(
    name: str, summary: str, *, reference: Any, written: Callable[[Params], int], **more: Any
) -> Operator:
    """Make an operator that joins several tensors; their gradients are parts of the incoming one."""

    def cost(p: Params) -> Cost:
        nbytes = sizeof(p["dtype"])
        return Cost(0, p["count"] * elements(p) * nbytes, written(p) * nbytes)

    return Operator(
        name=name,
        summary=summary,
        category="joining",
        inputs=_several,
        cost=cost,
        reference=reference,
        tolerance=EXACT,
        gradients=("x*",),
        gradient_view=True,
        **more,
    )


def _all(p: Params) -> int:
    return int(p["count"]) * elements(p)


CONCAT = _join_operator(
    "concat",
    "tensors of one shape, joined along an existing axis",
    params=(SHAPE, COUNT, AXIS, dtype(*ANY)),
    rules=(AXIS_EXISTS,),
    written=_all,
    reference=lambda p, **inputs: np.concatenate(list(inputs.values()), p["axis"]),
    presets=PRESETS,
    implementations=(
        _call_list("numpy.concatenate", lambda p: (p["axis"],)),
        _call_list("torch.cat", lambda p: (p["axis"],)),
    ),
    aliases=("cat", "Concat", "concatenate", "hstack", "vstack", "dstack", "column_stack"),
)

STACK = _join_operator(
    "stack",
    "tensors of one shape, joined along a new axis",
    params=(SHAPE, COUNT, integer("axis", "position of the new axis in the result; negative counts from the last", 0),
            dtype(*ANY)),
    rules=(ParamRule("axis", "be at most the number of axes of {shape}, or at least its negative less 1 (got {axis})",
                lambda p: -len(p["shape"]) - 1 <= p["axis"] <= len(p["shape"])),),
    written=_all,
    reference=lambda p, **inputs: np.stack(list(inputs.values()), p["axis"]),
    presets=PRESETS,
    implementations=(_call_list("numpy.stack", lambda p: (p["axis"],)),
                     _call_list("torch.stack", lambda p: (p["axis"],))),
)  # fmt: skip


def _block_diag(p: Params, **inputs: Any) -> Any:
    blocks = list(inputs.values())
    height, width = blocks[0].shape
    out = np.zeros((len(blocks) * height, len(blocks) * width), blocks[0].dtype)
    for i, block in enumerate(blocks):
        out[i * height : (i + 1) * height, i * width : (i + 1) * width] = block
    return out


BLOCK_DIAG = _join_operator(
    "block_diag",
    "a matrix with the given matrices on its diagonal and zeros elsewhere",
    params=(SHAPE, COUNT, dtype(*FLOATS)),
    rules=(ParamRule("shape", "have 2 axes (got {shape})", lambda p: len(p["shape"]) == 2),),
    written=lambda p: p["count"] * _all(p),
    reference=_block_diag,
    presets={
        "small": {"shape": [64, 64]},
        "typical": {"shape": [512, 512]},
        "large": {"shape": [2048, 2048], "count": 6},
    },
    implementations=(reference_in_numpy(_block_diag), call_with("torch.block_diag")),
)


def _length(p: Params) -> int:
    return int(p["shape"][p["axis"]])


def _share(p: Params) -> int:
    """Return the length of each part along the axis; the last part may be shorter."""
    return -(-_length(p) // int(p["parts"]))


def _chunks(p: Params, x: Any) -> Any:
    return tuple(np.split(x, range(_share(p), _length(p), _share(p)), p["axis"]))


PARTS = size("parts", "number of parts", 2)
NOT_MORE = ParamRule("parts", "be at most the length of axis {axis} of {shape} (got {parts})",
                lambda p: p["parts"] <= p["shape"][p["axis"]])  # fmt: skip
DIVIDES = ParamRule("parts", "divide the length of axis {axis} of {shape} (got {parts})",
               lambda p: p["shape"][p["axis"]] % p["parts"] == 0)  # fmt: skip

SPLIT = view_operator(
    "split",
    "equal parts along one axis",
    category="joining",
    params=(PARTS, AXIS),
    rules=(AXIS_EXISTS, DIVIDES),
    gradient_reads=elements,
    reference=lambda p, x: tuple(np.split(x, p["parts"], p["axis"])),
    torch=call_with("torch.split", lambda p: (_share(p), p["axis"])),
    aliases=("SliceChannel", "hsplit", "vsplit", "dsplit", "split_with_sizes"),
)

CHUNK = view_operator(
    "chunk",
    "parts along one axis; the last one may be shorter",
    category="joining",
    params=(PARTS, AXIS),
    rules=(AXIS_EXISTS, NOT_MORE),
    gradient_reads=elements,
    reference=_chunks,
    torch=call_with("torch.chunk", lambda p: (p["parts"], p["axis"])),
    aliases=("array_split",),
)

UNBIND = view_operator(
    "unbind",
    "one tensor for each place along one axis",
    category="joining",
    params=(AXIS,),
    rules=(AXIS_EXISTS, ParamRule("shape", "have at least 2 axes (got {shape})", lambda p: len(p["shape"]) >= 2)),
    presets={
        "small": {"shape": [8, 64, 64], "axis": 0},
        "typical": {"shape": [16, 512, 512], "axis": 0},
        "large": {"shape": [32, 1024, 1024], "axis": 0},
    },
    gradient_reads=elements,
    reference=lambda p, x: tuple(np.moveaxis(x, p["axis"], 0)),
    torch=call_with("torch.unbind", lambda p: (p["axis"],)),
    aliases=("unstack",),
)

SPLIT_COPY = moving_operator(
    "split_copy",
    "equal parts along one axis, each copied to a tensor of its own",
    category="joining",
    params=(PARTS, AXIS),
    rules=(AXIS_EXISTS, DIVIDES),
    reference=lambda p, x: tuple(part.copy() for part in np.split(x, p["parts"], p["axis"])),
    torch=call_with("torch.split_copy", lambda p: (_share(p), p["axis"])),
)


def _meshgrid(p: Params, x: Any, y: Any) -> Any:
    return np.broadcast_to(x[:, None], (p["M"], p["N"])), np.broadcast_to(y, (p["M"], p["N"]))


def _meshgrid_backward(p: Params) -> Cost:
    """Each gradient is the sum of the incoming one along the axis of the other vector."""
    m, n, nbytes = p["M"], p["N"], sizeof(p["dtype"])
    return Cost(2 * m * n - m - n, 2 * m * n * nbytes, (m + n) * nbytes)


def _torch_meshgrid(p: Params, x: Any, y: Any) -> Launch:
    from torch import meshgrid

    return partial(meshgrid, x, y, indexing="ij")


MESHGRID = Operator(
    name="meshgrid",
    summary="two vectors repeated to the matrices of their coordinates (views)",
    category="joining",
    params=(size("M", "elements of x"), size("N", "elements of y"), dtype(*ANY)),
    inputs=lambda p: {"x": data((p["M"],), p["dtype"]), "y": data((p["N"],), p["dtype"])},
    cost=lambda _: NOTHING,
    backward_cost=_meshgrid_backward,
    reference=_meshgrid,
    tolerance=ADDED_UP,
    presets={
        "small": {"M": 256, "N": 256},
        "typical": {"M": 2048, "N": 2048},
        "large": {"M": 8192, "N": 4096},
    },
    gradients=("x", "y"),
    view=True,
    implementations=(reference_in_numpy(_meshgrid), torch(_torch_meshgrid, "torch.meshgrid")),
)

OPERATORS = (CONCAT, STACK, BLOCK_DIAG, SPLIT, CHUNK, UNBIND, SPLIT_COPY, MESHGRID)
