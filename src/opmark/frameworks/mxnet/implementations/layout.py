"""Reshaping, moving, splitting, joining and padding.

Views of torch are new tensors here, unless the order of all elements stays.
"""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.mxnet.implementations._rows import nd, np, np_row, row
from opmark.plugin import Params

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


def _order(p: Params) -> tuple[int, ...]:
    return tuple(p["axes"]) or tuple(range(len(p["shape"])))[::-1]


def _pad(mx: Any, p: Params, x: Any) -> Any:
    axes = len(p["before"])
    if p["mode"] not in MODES or x.ndim not in (4, 5) or axes > x.ndim - 2:
        raise Unsupported("MXNet pads only the last axes of 4 or 5, and has no circular mode")
    widths = [0] * 2 * (x.ndim - axes) + [n for pair in zip(p["before"], p["after"], strict=True) for n in pair]
    return mx.nd.pad(x, mode=MODES[p["mode"]], pad_width=tuple(widths), constant_value=p["value"])


def _rot90(mx: Any, p: Params, x: Any) -> Any:
    return mx.np.rot90(x, p["k"], (x.ndim - 2, x.ndim - 1))


def _blocks(name: str) -> Any:
    """MXNet's own functions count block positions slowest."""

    def call(mx: Any, p: Params, x: Any) -> Any:
        if p["order"] == "dcr":
            return getattr(mx.nd, name)(x, block_size=p["block"])
        (n, c, h, w), b = x.shape, p["block"]
        if name == "depth_to_space":
            apart = x.reshape((n, c // (b * b), b, b, h, w)).transpose((0, 1, 4, 2, 5, 3))
            return apart.reshape((n, c // (b * b), h * b, w * b))
        apart = x.reshape((n, c, h // b, b, w // b, b)).transpose((0, 1, 3, 5, 2, 4))
        return apart.reshape((n, c * b * b, h // b, w // b))

    return row(call, f"mxnet.nd.{name}")


def _channel_shuffle(mx: Any, p: Params, x: Any) -> Any:
    n, c, *image = x.shape
    return x.reshape((n, p["groups"], c // p["groups"], *image)).swapaxes(1, 2).reshape(x.shape)


def _slice(mx: Any, p: Params, x: Any) -> Any:
    if p["step"] == 1:
        return mx.nd.slice_axis(x, axis=p["axis"], begin=p["begin"], end=p["end"])
    taken = [slice(None)] * x.ndim
    taken[p["axis"]] = slice(p["begin"], p["end"], p["step"])
    return x[tuple(taken)]


def _narrow(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.slice_axis(x, axis=p["axis"], begin=p["start"], end=p["start"] + p["length"])


def _select(mx: Any, p: Params, x: Any) -> Any:
    part = mx.nd.slice_axis(x, axis=p["axis"], begin=p["index"], end=p["index"] + 1)
    return mx.nd.squeeze(part, axis=p["axis"])


def _call_with_list(mx: Any, p: Params, name: str, inputs: Any) -> Any:
    return getattr(mx.nd, name)(*inputs.values(), **{"dim" if name == "concat" else "axis": p["axis"]})


def _split(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.split(x, num_outputs=p["parts"], axis=p["axis"])


def _chunk(mx: Any, p: Params, x: Any) -> Any:
    length = p["shape"][p["axis"]]
    share = -(-length // p["parts"])
    return mx.nd.split_v2(x, tuple(range(share, length, share)), axis=p["axis"])


def _unbind(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.split(x, num_outputs=p["shape"][p["axis"]], axis=p["axis"], squeeze_axis=True)


def _meshgrid(mx: Any, p: Params, x: Any, y: Any) -> Any:
    size = (p["M"], p["N"])
    return mx.nd.broadcast_to(x.expand_dims(1), shape=size), mx.nd.broadcast_to(y.expand_dims(0), shape=size)


def _broadcast(mx: Any, p: Params, x: Any) -> Any:
    new = len(p["target"]) - x.ndim
    return mx.nd.broadcast_to(x.reshape((1,) * new + x.shape) if new else x, shape=tuple(p["target"]))


def _block_diag(mx: Any, p: Params, **inputs: Any) -> Any:
    """Build one row of blocks after the other."""
    blocks, nothing = list(inputs.values()), mx.nd.zeros(tuple(p["shape"]), dtype=p["dtype"])
    rows = [mx.nd.concat(*(b if j == i else nothing for j in range(len(blocks))), dim=1) for i, b in enumerate(blocks)]
    return mx.nd.concat(*rows, dim=0)


IMPLEMENTATIONS = {
    "reshape": row(lambda mx, p, x: x.reshape(tuple(p["target"])), "mxnet.nd.reshape"),
    "flatten": nd("flatten", "x"),
    "expand_dims": nd("expand_dims", "x", axis="axis"),
    "squeeze": nd("squeeze", "x", axis="axis"),
    "swapaxes": nd("swapaxes", "x", dim1="axis1", dim2="axis2"),
    **{name: row(lambda mx, p, x: mx.nd.transpose(x, axes=_order(p)), "mxnet.nd.transpose")
       for name in ("transpose", "permute")},
    **{name: row(_broadcast, "mxnet.nd.broadcast_to") for name in ("broadcast_to", "broadcast_copy")},
    "flip": row(lambda mx, p, x: mx.nd.flip(x, axis=p["axis"] % x.ndim), "mxnet.nd.flip"),
    "roll": np("roll", "x", shift="shift", axis="axis"),
    "rot90": np_row(_rot90, "mxnet.np.rot90"),
    "tile": row(lambda mx, p, x: mx.nd.tile(x, reps=tuple(p["reps"])), "mxnet.nd.tile"),
    "repeat": nd("repeat", "x", repeats="repeats", axis="axis"),
    "pad": row(_pad, "mxnet.nd.pad"),
    **{name: _blocks(name) for name in ("depth_to_space", "space_to_depth")},
    "channel_shuffle": row(_channel_shuffle),
    "shape_array": nd("shape_array", "x"),
    "size_array": nd("size_array", "x"),
    "slice": row(_slice, "mxnet.nd.slice_axis"),
    "narrow": row(_narrow, "mxnet.nd.slice_axis"),
    "select": row(_select, "mxnet.nd.slice_axis"),
    "diagonal": np_row(lambda mx, p, x: mx.np.diagonal(x, p["k"], x.ndim - 2, x.ndim - 1), "mxnet.np.diagonal"),
    **{name: row(lambda mx, p, name=name, **inputs: _call_with_list(mx, p, name, inputs), f"mxnet.nd.{name}")
       for name in ("concat", "stack")},
    "block_diag": row(_block_diag),
    **{name: row(_split, "mxnet.nd.split") for name in ("split", "split_copy")},
    "chunk": row(_chunk, "mxnet.nd.split_v2"),
    "unbind": row(_unbind, "mxnet.nd.split"),
    "meshgrid": row(_meshgrid, "mxnet.nd.broadcast_to"),
}  # fmt: skip
