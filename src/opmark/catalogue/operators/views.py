"""Views of a whole tensor in another shape or order, and views of parts of it."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import AXIS_EXISTS, elements, is_axis
from opmark.catalogue.operators._builders import torch
from opmark.catalogue.operators._layout import ADDED_UP, AXIS, call_with, view_operator
from opmark.plugin import Launch, ParamRule, Params
from opmark.plugin.param import counts, integer, shape, size


def is_order(p: Params) -> bool:
    """Return whether `axes` names each axis of `shape` once; an empty list means the reverse order."""
    return not p["axes"] or sorted(p["axes"]) == list(range(len(p["shape"])))


def order(p: Params) -> list[int]:
    return list(p["axes"]) or list(range(len(p["shape"])))[::-1]


AXES = counts("axes", "the axes in their new order, as in [0, 2, 1]; [] reverses them", [])
AXES_EXIST = ParamRule("axes", "name each axis of shape {shape} once (got {axes})", is_order)


def _pair(name: str, default: int) -> Any:
    return integer(name, "axis to swap; negative counts from the last", default)


def _broadcasts(p: Params) -> bool:
    tail = p["target"][len(p["target"]) - len(p["shape"]) :]
    return len(p["target"]) >= len(p["shape"]) and all(n in (1, to) for n, to in zip(p["shape"], tail, strict=True))


TARGET = shape("target", "shape of the result")
BROADCASTS = ParamRule("target", "be a shape that {shape} can be broadcast to (got {target})", _broadcasts)
BROADCAST_PRESETS = {
    "small": {"shape": [1, 256], "target": [256, 256]},
    "typical": {"shape": [1, 2048], "target": [2048, 2048]},
    "large": {"shape": [1, 8192], "target": [4096, 8192]},
}


def broadcast_elements(p: Params) -> int:
    return prod(p["target"])


def broadcast_adds(p: Params) -> int:
    """Return the additions of the gradient: a sum of n terms has n - 1 of them."""
    return prod(p["target"]) - elements(p)


RESHAPE = view_operator(
    "reshape",
    "x in another shape with as many elements",
    params=(TARGET,),
    presets={
        "small": {"shape": [256, 256], "target": [64, 1024]},
        "typical": {"shape": [2048, 1024], "target": [1024, 2048]},
        "large": {"shape": [8192, 4096], "target": [4096, 8192]},
    },
    rules=(ParamRule("target", "have as many elements as shape {shape} (got {target})",
                lambda p: prod(p["target"]) == elements(p)),),
    reference=lambda p, x: x.reshape(p["target"]),
    torch=call_with("torch.reshape", lambda p: (tuple(p["target"]),)),
    aliases=("reshape_like", "Reshape", "view", "view_as"),
)  # fmt: skip

FLATTEN = view_operator(
    "flatten",
    "x with all axes but the first joined",
    rules=(ParamRule("shape", "have at least 2 axes (got {shape})", lambda p: len(p["shape"]) >= 2),),
    presets={
        "small": {"shape": [16, 8, 8, 8]},
        "typical": {"shape": [128, 32, 32, 16]},
        "large": {"shape": [128, 512, 512]},
    },
    reference=lambda p, x: x.reshape(x.shape[0], -1),
    torch=call_with("torch.flatten", lambda _: (1,)),
    aliases=("Flatten",),
)

EXPAND_DIMS = view_operator(
    "expand_dims",
    "x with an additional axis of length 1",
    params=(integer("axis", "position of the new axis in the result; negative counts from the last", 0),),
    rules=(ParamRule("axis", "be at most the number of axes of {shape}, or at least its negative less 1 (got {axis})",
                lambda p: -len(p["shape"]) - 1 <= p["axis"] <= len(p["shape"])),),
    reference=lambda p, x: np.expand_dims(x, p["axis"]),
    torch=call_with("torch.unsqueeze", lambda p: (p["axis"],)),
    aliases=("unsqueeze",),
)  # fmt: skip

SQUEEZE = view_operator(
    "squeeze",
    "x without one axis of length 1",
    params=(AXIS,),
    rules=(AXIS_EXISTS, ParamRule("axis", "name an axis of length 1 of shape {shape} (got {axis})",
                             lambda p: p["shape"][p["axis"]] == 1)),
    presets={
        "small": {"shape": [256, 1, 256], "axis": 1},
        "typical": {"shape": [32, 1, 256, 256], "axis": 1},
        "large": {"shape": [512, 1, 256, 256], "axis": 1},
    },
    reference=lambda p, x: np.squeeze(x, p["axis"]),
    torch=call_with("torch.squeeze", lambda p: (p["axis"],)),
)  # fmt: skip

SWAPAXES = view_operator(
    "swapaxes",
    "x with two axes swapped",
    params=(_pair("axis1", -2), _pair("axis2", -1)),
    rules=(
        ParamRule("axis1", "name an axis of shape {shape} (got {axis1})", lambda p: is_axis(p, p["axis1"])),
        ParamRule("axis2", "name an axis of shape {shape} (got {axis2})", lambda p: is_axis(p, p["axis2"])),
    ),
    reference=lambda p, x: np.swapaxes(x, p["axis1"], p["axis2"]),
    torch=call_with("torch.transpose", lambda p: (p["axis1"], p["axis2"])),
    aliases=("SwapAxis", "swapdims", "transpose_view", "t"),
)

PERMUTE = view_operator(
    "permute",
    "x with its axes in another order",
    params=(AXES,),
    rules=(AXES_EXIST,),
    presets={
        "small": {"shape": [2, 32, 16, 16], "axes": [0, 2, 1, 3]},
        "typical": {"shape": [8, 256, 16, 64], "axes": [0, 2, 1, 3]},
        "large": {"shape": [16, 2048, 16, 64], "axes": [0, 2, 1, 3]},
    },
    reference=lambda p, x: x.transpose(order(p)),
    torch=call_with("torch.permute", lambda p: (order(p),)),
    aliases=("movedim", "moveaxis"),
)

BROADCAST_TO = view_operator(
    "broadcast_to",
    "x with axes of length 1 repeated",
    params=(TARGET,),
    rules=(BROADCASTS,),
    presets=BROADCAST_PRESETS,
    gradient_reads=broadcast_elements,
    gradient_adds=broadcast_adds,
    whole=lambda p: p["shape"] == p["target"],
    tolerance=ADDED_UP,
    reference=lambda p, x: np.broadcast_to(x, p["target"]),
    torch=call_with("torch.broadcast_to", lambda p: (tuple(p["target"]),)),
    aliases=("broadcast_like", "broadcast_axis", "broadcast_axes", "expand", "expand_as"),
)


# Views of parts of a tensor: slices, diagonals, windows.


def _slices(p: Params) -> Any:
    """Return the index of a slice along one axis."""
    whole = [slice(None)] * len(p["shape"])
    whole[p["axis"]] = slice(p["begin"], p["end"], p["step"])
    return tuple(whole)


def _torch_slice(p: Params, x: Any) -> Launch:
    index = _slices(p)
    return lambda: x[index]


def _others(p: Params) -> int:
    """Return the number of elements at one place along the axis."""
    return elements(p) // int(p["shape"][p["axis"]])


def diagonal_length(p: Params) -> int:
    rows, columns = p["shape"][-2:]
    return int(max(0, min(rows + min(p["k"], 0), columns - max(p["k"], 0))))


def _windows(p: Params) -> int:
    return int((p["shape"][p["axis"]] - p["length"]) // p["step"] + 1)


def _unfold(p: Params, x: Any) -> Any:
    along = p["axis"] % x.ndim
    windows = np.lib.stride_tricks.sliding_window_view(x, p["length"], axis=along)
    index = (*(slice(None),) * along, slice(None, None, p["step"]))
    return windows[index]


def _last_place(p: Params) -> int:
    return int(p["offset"] + sum((n - 1) * step for n, step in zip(p["size"], p["strides"], strict=True)))


def _as_strided(p: Params, x: Any) -> Any:
    flat = x.reshape(-1)[p["offset"] :]
    strides = [step * x.itemsize for step in p["strides"]]
    return np.lib.stride_tricks.as_strided(flat, p["size"], strides, writeable=False)


SLICE = view_operator(
    "slice",
    "a part of one axis, with a step",
    params=(
        AXIS,
        integer("begin", "first place along the axis", kind="count"),
        size("end", "end, exclusive"),
        size("step", "distance between places", 1),
    ),
    rules=(
        AXIS_EXISTS,
        ParamRule("end", "be at most the length of axis {axis} of {shape} (got {end})",
             lambda p: p["end"] <= p["shape"][p["axis"]]),
        ParamRule("begin", "be less than end {end} (got {begin})", lambda p: p["begin"] < p["end"]),
    ),
    presets={
        "small": {"shape": [256, 256], "begin": 64, "end": 192},
        "typical": {"shape": [2048, 2048], "begin": 512, "end": 1536},
        "large": {"shape": [8192, 4096], "begin": 1024, "end": 3072},
    },
    gradient_reads=lambda p: _others(p) * len(range(p["begin"], p["end"], p["step"])),
    whole=lambda p: (p["begin"], p["end"], p["step"]) == (0, p["shape"][p["axis"]], 1),
    reference=lambda p, x: x[_slices(p)],
    torch=torch(_torch_slice, "torch.Tensor.__getitem__"),
    aliases=("slice_axis", "slice_like", "getitem"),
)  # fmt: skip

NARROW = view_operator(
    "narrow",
    "consecutive places of one axis",
    params=(AXIS, integer("start", "first place", 0, kind="count"), size("length", "how many places")),
    rules=(
        AXIS_EXISTS,
        ParamRule("length", "end within axis {axis} of {shape} (got {length} from {start} on)",
             lambda p: p["start"] + p["length"] <= p["shape"][p["axis"]]),
    ),
    presets={
        "small": {"shape": [256, 256], "start": 64, "length": 128},
        "typical": {"shape": [2048, 2048], "start": 512, "length": 1024},
        "large": {"shape": [8192, 4096], "start": 1024, "length": 2048},
    },
    gradient_reads=lambda p: _others(p) * p["length"],
    reference=lambda p, x: x[_slices({**p, "begin": p["start"], "end": p["start"] + p["length"], "step": 1})],
    torch=call_with("torch.narrow", lambda p: (p["axis"], p["start"], p["length"])),
)  # fmt: skip

SELECT = view_operator(
    "select",
    "one place of one axis",
    params=(AXIS, integer("index", "the place", 0, kind="count")),
    rules=(
        AXIS_EXISTS,
        ParamRule("shape", "have at least 2 axes (got {shape})", lambda p: len(p["shape"]) >= 2),
        ParamRule("index", "be less than the length of axis {axis} of {shape} (got {index})",
             lambda p: p["index"] < p["shape"][p["axis"]]),
    ),
    gradient_reads=_others,
    reference=lambda p, x: x[_slices({**p, "begin": p["index"], "end": p["index"] + 1, "step": 1})].squeeze(p["axis"]),
    torch=call_with("torch.select", lambda p: (p["axis"], p["index"])),
)  # fmt: skip

DIAGONAL = view_operator(
    "diagonal",
    "a diagonal of the last two axes",
    params=(integer("k", "0: the main diagonal; positive: above it", 0),),
    rules=(
        ParamRule("shape", "have at least 2 axes (got {shape})", lambda p: len(p["shape"]) >= 2),
        ParamRule("k", "name a diagonal of the last two axes of {shape} (got {k})", lambda p: diagonal_length(p) > 0),
    ),
    gradient_reads=lambda p: prod(p["shape"][:-2]) * diagonal_length(p),
    reference=lambda p, x: np.diagonal(x, p["k"], -2, -1),
    torch=call_with("torch.diagonal", lambda p: (p["k"], -2, -1)),
    aliases=("linalg_diagonal",),
)

UNFOLD = view_operator(
    "unfold",
    "windows along one axis, whose elements form a new last axis",
    params=(
        AXIS,
        size("length", "elements of a window"),
        size("step", "distance between windows", 1),
    ),
    rules=(AXIS_EXISTS, ParamRule("length", "be at most the length of axis {axis} of {shape} (got {length})",
                             lambda p: p["length"] <= p["shape"][p["axis"]])),
    presets={
        "small": {"shape": [16, 1024], "length": 64, "step": 16},
        "typical": {"shape": [64, 16384], "length": 512, "step": 128},
        "large": {"shape": [256, 65536], "length": 512, "step": 128},
    },
    gradient_reads=lambda p: _others(p) * _windows(p) * p["length"],
    gradient_adds=lambda p: _others(p) * _windows(p) * p["length"],
    tolerance=ADDED_UP,
    reference=_unfold,
    torch=call_with("torch.Tensor.unfold", lambda p: (p["axis"], p["length"], p["step"])),
    aliases=("sliding_window_view",),
)  # fmt: skip

AS_STRIDED = view_operator(
    "as_strided",
    "any sizes and strides over the memory of x",
    params=(
        shape("size", "shape of the result"),
        counts("strides", "elements between two places, along each axis"),
        integer("offset", "index of the first element", 0, kind="count"),
    ),
    rules=(
        ParamRule("strides", "have one number for each axis of size {size} (got {strides})",
             lambda p: len(p["strides"]) == len(p["size"])),
        ParamRule("size", "stay within the elements of shape {shape} (got {size})",
             lambda p: _last_place(p) < elements(p)),
    ),
    presets={
        "small": {"shape": [256, 256], "size": [128, 64], "strides": [256, 2]},
        "typical": {"shape": [2048, 2048], "size": [1024, 512], "strides": [2048, 2]},
        "large": {"shape": [8192, 4096], "size": [4096, 2048], "strides": [4096, 2]},
    },
    gradient_reads=lambda p: prod(p["size"]),
    gradient_adds=lambda p: prod(p["size"]),
    tolerance=ADDED_UP,
    reference=_as_strided,
    torch=call_with("torch.as_strided", lambda p: (p["size"], p["strides"], p["offset"])),
)  # fmt: skip


OPERATORS = (
    RESHAPE,
    FLATTEN,
    EXPAND_DIMS,
    SQUEEZE,
    SWAPAXES,
    PERMUTE,
    BROADCAST_TO,
    SLICE,
    NARROW,
    SELECT,
    DIAGONAL,
    UNFOLD,
    AS_STRIDED,
)
