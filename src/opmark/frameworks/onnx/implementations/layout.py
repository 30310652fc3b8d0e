"""Reshaping, moving, splitting and joining, triangles, sequences, and copies in place of views."""

from __future__ import annotations

from typing import Any

from opmark.frameworks.onnx.implementations._graph import GraphBuilder, graph
from opmark.plugin import Params

_BEFORE_THE_FIRST = -(2**63)
"""End of a slice with a negative step that includes the first element."""
_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def transpose(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.Transpose(x, perm=list(p["axes"]) or list(range(len(p["shape"])))[::-1])


def _flip(g: GraphBuilder, x: str, axis: int) -> Any:
    return g.Slice(x, [-1], [_BEFORE_THE_FIRST], [axis], [-1])


def _roll(g: GraphBuilder, p: Params, x: str) -> Any:
    axis, n = p["axis"], p["shape"][p["axis"]]
    at = -p["shift"] % n
    if not at:
        return g.Identity(x)
    return g.Concat(g.Slice(x, [at], [n], [axis]), g.Slice(x, [0], [at], [axis]), axis=axis)


def _rot90(g: GraphBuilder, p: Params, x: str) -> Any:
    rank, k = len(p["shape"]), p["k"] % 4
    swap = [*range(rank - 2), rank - 1, rank - 2]
    if k == 0:
        return g.Identity(x)
    if k == 2:
        return _flip(g, _flip(g, x, -1), -2)
    return _flip(g, g.Transpose(x, perm=swap), -2 if k == 1 else -1)


def _tile(g: GraphBuilder, p: Params, x: str) -> Any:
    """Tile; more repetitions than axes add new axes in front, fewer apply to the last ones."""
    reps, shape = list(p["reps"]), list(p["shape"])
    more = len(reps) - len(shape)
    if more > 0:
        x = g.Unsqueeze(x, list(range(more)))
    return g.Tile(x, [1] * -more + reps)


def _repeat(g: GraphBuilder, p: Params, x: str) -> Any:
    """Repeat as exporters write it: by a new axis that is expanded and then joined."""
    shape, axis = list(p["shape"]), p["axis"] % len(p["shape"])
    longer = [*shape[: axis + 1], p["repeats"], *shape[axis + 1 :]]
    joined = [*shape[:axis], shape[axis] * p["repeats"], *shape[axis + 1 :]]
    return g.Reshape(g.Expand(g.Unsqueeze(x, [axis + 1]), longer), joined)


def _space_to_depth(g: GraphBuilder, p: Params, x: str) -> Any:
    """Write dcr order by the node, as ONNX has only that, and crd order by transposing."""
    if p["order"] == "dcr":
        return g.SpaceToDepth(x, blocksize=p["block"])
    (n, c, h, w), b = p["shape"], p["block"]
    apart = g.Transpose(g.Reshape(x, [n, c, h // b, b, w // b, b]), perm=[0, 1, 3, 5, 2, 4])
    return g.Reshape(apart, [n, c * b * b, h // b, w // b])


def _channel_shuffle(g: GraphBuilder, p: Params, x: str) -> Any:
    n, c, *image = p["shape"]
    apart = g.Reshape(x, [n, p["groups"], c // p["groups"], *image])
    return g.Reshape(g.Transpose(apart, perm=[0, 2, 1, *range(3, 3 + len(image))]), p["shape"])


def _pad(g: GraphBuilder, p: Params, x: str) -> Any:
    left = [0] * (len(p["shape"]) - len(p["before"]))
    widths, mode = [*left, *p["before"], *left, *p["after"]], _PAD_MODES[p["mode"]]
    return g.Pad(x, widths, p["value"], mode=mode) if mode == "constant" else g.Pad(x, widths, mode=mode)


def _stack(g: GraphBuilder, p: Params, **parts: str) -> Any:
    return g.Concat(*(g.Unsqueeze(x, [p["axis"]]) for x in parts.values()), axis=p["axis"])


def _block_diag(g: GraphBuilder, p: Params, **blocks: str) -> Any:
    width, count = p["shape"][1], len(blocks)
    rows = [g.Pad(x, [0, i * width, 0, (count - 1 - i) * width]) for i, x in enumerate(blocks.values())]
    return g.Concat(*rows, axis=0)


def split(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.Split(x, outputs=p["parts"], axis=p["axis"], num_outputs=p["parts"])


def diagonal(g: GraphBuilder, x: str, shape: list[int], k: int) -> Any:
    """Gather a diagonal from each matrix as a flat row."""
    *batch, rows, columns = shape
    places = [i * columns + i + k for i in range(rows) if 0 <= i + k < columns]
    return g.Gather(g.Reshape(x, [*batch, rows * columns]), places, axis=-1)


def _diag_embed(g: GraphBuilder, p: Params, x: str) -> Any:
    """Select elements as columns by a mask; off the main diagonal, pad them first."""
    import numpy as np

    rank, n, k = len(p["shape"]), p["shape"][-1], p["k"]
    if k:
        none = [0] * (rank - 1)
        x = g.Pad(x, [*none, max(-k, 0), *none, max(k, 0)])
    there = g.constant(np.eye(n + abs(k), k=k), "bool")
    return g.Where(there, g.Unsqueeze(x, [-1]), False if p["dtype"] == "bool" else 0)


def _trilu(upper: int) -> Any:
    return graph(lambda g, p, x: g.Trilu(x, g.constant(p["k"]), upper=upper), path="onnx.Trilu")


def _triangle(p: Params) -> Any:
    """Return the flat indices of a triangle in a matrix."""
    import numpy as np

    rows, columns = (np.triu_indices if p["upper"] else np.tril_indices)(p["n"])
    return rows * p["n"] + columns


def _extract_triangle(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.Gather(g.Reshape(x, [p["batch"], -1]), g.constant(_triangle(p)), axis=1)


def _make_triangle(g: GraphBuilder, p: Params, x: str) -> Any:
    """Gather the element of each place; places outside gather an additional zero."""
    import numpy as np

    places = _triangle(p)
    source = np.full(p["n"] ** 2, len(places))
    source[places] = np.arange(len(places))
    return g.Reshape(g.Gather(g.Pad(x, [0, 0, 0, 1]), g.constant(source), axis=1), [p["batch"], p["n"], p["n"]])


def _trace(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.ReduceSum(diagonal(g, x, [p["n"], p["n"]], 0), [-1], keepdims=0)


def _sumlogdiag(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.ReduceSum(g.Log(diagonal(g, x, [p["batch"], p["n"], p["n"]], 0)), [-1], keepdims=0)


def _sequence_mask(g: GraphBuilder, p: Params, x: str, lengths: str) -> Any:
    steps = g.constant([[[i]] for i in range(p["steps"])])
    return g.Where(g.Less(steps, g.Unsqueeze(lengths, [0, 2])), x, p["value"])


def _sequence_last(g: GraphBuilder, p: Params, x: str, lengths: str) -> Any:
    each = g.constant([[i] for i in range(p["batch"])])
    return g.GatherND(x, g.Concat(g.Unsqueeze(g.Sub(lengths, 1), [1]), each, axis=1))


def _sequence_reverse(g: GraphBuilder, p: Params, x: str, lengths: str) -> Any:
    return g.ReverseSequence(x, lengths, time_axis=0, batch_axis=1)


# Views of other frameworks. A model's outputs have their own memory, so these are copies.


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
    "transpose": graph(transpose, path="onnx.Transpose"),
    "flip": graph(lambda g, p, x: _flip(g, x, p["axis"]), path="onnx.Slice"),
    "roll": graph(_roll),
    "rot90": graph(_rot90),
    "tile": graph(_tile, path="onnx.Tile"),
    "repeat": graph(_repeat),
    "broadcast_copy": graph(lambda g, p, x: g.Expand(x, p["target"]), path="onnx.Expand"),
    "depth_to_space": graph(
        lambda g, p, x: g.DepthToSpace(x, blocksize=p["block"], mode=p["order"].upper()), path="onnx.DepthToSpace"
    ),
    "space_to_depth": graph(_space_to_depth),
    "channel_shuffle": graph(_channel_shuffle),
    "pad": graph(_pad, path="onnx.Pad"),
    "concat": graph(lambda g, p, **parts: g.Concat(*parts.values(), axis=p["axis"]), path="onnx.Concat"),
    "stack": graph(_stack),
    "block_diag": graph(_block_diag),
    "split_copy": graph(split, path="onnx.Split"),
    "diag": graph(lambda g, p, x: diagonal(g, x, list(p["shape"]), p["k"])),
    "diag_embed": graph(_diag_embed),
    "triu": _trilu(1),
    "tril": _trilu(0),
    "extract_triangle": graph(_extract_triangle),
    "make_triangle": graph(_make_triangle),
    "trace": graph(_trace),
    "sumlogdiag": graph(_sumlogdiag),
    "sequence_mask": graph(_sequence_mask),
    "sequence_last": graph(_sequence_last),
    "sequence_reverse": graph(_sequence_reverse, path="onnx.ReverseSequence"),
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
