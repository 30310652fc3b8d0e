"""Views of other frameworks. A model's outputs have their own memory, so these are copies."""

from __future__ import annotations

from typing import Any

from opmark.implementations.onnx._graph import GraphBuilder, graph
from opmark.implementations.onnx.moving import diagonal, split, transpose
from opmark.schema import Params


def _slice(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.Slice(x, [p["begin"]], [p["end"]], [p["axis"]], [p["step"]])


def _narrow(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.Slice(x, [p["start"]], [p["start"] + p["length"]], [p["axis"]])


def _select(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.Gather(x, g.constant(p["index"]), axis=p["axis"])


def _unfold(g: GraphBuilder, p: Params, x: str) -> Any:
    """Gather windows; their elements become the last axis."""
    rank, axis = len(p["shape"]), p["axis"] % len(p["shape"])
    starts = range(0, p["shape"][axis] - p["length"] + 1, p["step"])
    windows = g.Gather(x, [[start + i for i in range(p["length"])] for start in starts], axis=axis)
    if axis == rank - 1:
        return windows
    return g.Transpose(windows, perm=[*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


def _chunk(g: GraphBuilder, p: Params, x: str) -> Any:
    """Split into chunks; the last may be shorter, or there may be fewer."""
    n = p["shape"][p["axis"]]
    share = -(-n // p["parts"])
    sizes = [min(share, n - start) for start in range(0, n, share)]
    return g.Split(x, sizes, outputs=len(sizes), axis=p["axis"])


def _unbind(g: GraphBuilder, p: Params, x: str) -> Any:
    """Split into single places and drop their axis, as exporters write it."""
    n = p["shape"][p["axis"]]
    parts = g.Split(x, [1] * n, outputs=n, axis=p["axis"])
    return tuple(g.Squeeze(part, [p["axis"]]) for part in ([parts] if n == 1 else parts))


def _meshgrid(g: GraphBuilder, p: Params, x: str, y: str) -> Any:
    whole = [p["M"], p["N"]]
    return g.Expand(g.Unsqueeze(x, [1]), whole), g.Expand(y, whole)


def _swapaxes(g: GraphBuilder, p: Params, x: str) -> Any:
    order = list(range(len(p["shape"])))
    one, other = p["axis1"], p["axis2"]
    order[one], order[other] = order[other], order[one]
    return g.Transpose(x, perm=order)


IMPLEMENTATIONS = {
    "slice": graph(_slice, path="onnx.Slice"),
    "narrow": graph(_narrow, path="onnx.Slice"),
    "select": graph(_select, path="onnx.Gather"),
    "diagonal": graph(lambda g, p, x: diagonal(g, x, list(p["shape"]), p["k"])),
    "unfold": graph(_unfold),
    "split": graph(split, path="onnx.Split"),
    "chunk": graph(_chunk, path="onnx.Split"),
    "unbind": graph(_unbind),
    "meshgrid": graph(_meshgrid),
    "reshape": graph(lambda g, p, x: g.Reshape(x, p["target"]), path="onnx.Reshape"),
    "flatten": graph(lambda g, p, x: g.Flatten(x, axis=1), path="onnx.Flatten"),
    "expand_dims": graph(lambda g, p, x: g.Unsqueeze(x, [p["axis"]]), path="onnx.Unsqueeze"),
    "squeeze": graph(lambda g, p, x: g.Squeeze(x, [p["axis"]]), path="onnx.Squeeze"),
    "swapaxes": graph(_swapaxes, path="onnx.Transpose"),
    "permute": graph(transpose, path="onnx.Transpose"),
    "broadcast_to": graph(lambda g, p, x: g.Expand(x, p["target"]), path="onnx.Expand"),
}
