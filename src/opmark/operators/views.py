"""Views of a whole tensor in another shape or order. Views of parts are in slicing.py."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._axis import AXIS_EXISTS, elements, is_axis
from opmark.operators._moving import ADDED_UP, AXIS, call_with, view_operator
from opmark.schema import Params, Rule
from opmark.schema.param import counts, integer, shape


def is_order(p: Params) -> bool:
    """Return whether `axes` names each axis of `shape` once; an empty list means the reverse order."""
    return not p["axes"] or sorted(p["axes"]) == list(range(len(p["shape"])))


def order(p: Params) -> list[int]:
    return list(p["axes"]) or list(range(len(p["shape"])))[::-1]


AXES = counts("axes", "the axes in their new order, as in [0, 2, 1]; [] reverses them", [])
AXES_EXIST = Rule("axes", "name each axis of shape {shape} once (got {axes})", is_order)


def _pair(name: str, default: int) -> Any:
    return integer(name, "axis to swap; negative counts from the last", default)


def _broadcasts(p: Params) -> bool:
    tail = p["target"][len(p["target"]) - len(p["shape"]) :]
    return len(p["target"]) >= len(p["shape"]) and all(n in (1, to) for n, to in zip(p["shape"], tail, strict=True))


TARGET = shape("target", "shape of the result")
BROADCASTS = Rule("target", "be a shape that {shape} can be broadcast to (got {target})", _broadcasts)
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
    rules=(Rule("target", "have as many elements as shape {shape} (got {target})",
                lambda p: prod(p["target"]) == elements(p)),),
    reference=lambda p, x: x.reshape(p["target"]),
    torch=call_with("torch.reshape", lambda p: (tuple(p["target"]),)),
    aliases=("reshape_like", "Reshape", "view", "view_as"),
)  # fmt: skip

FLATTEN = view_operator(
    "flatten",
    "x with all axes but the first joined",
    rules=(Rule("shape", "have at least 2 axes (got {shape})", lambda p: len(p["shape"]) >= 2),),
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
    rules=(Rule("axis", "be at most the number of axes of {shape}, or at least its negative less 1 (got {axis})",
                lambda p: -len(p["shape"]) - 1 <= p["axis"] <= len(p["shape"])),),
    reference=lambda p, x: np.expand_dims(x, p["axis"]),
    torch=call_with("torch.unsqueeze", lambda p: (p["axis"],)),
    aliases=("unsqueeze",),
)  # fmt: skip

SQUEEZE = view_operator(
    "squeeze",
    "x without one axis of length 1",
    params=(AXIS,),
    rules=(AXIS_EXISTS, Rule("axis", "name an axis of length 1 of shape {shape} (got {axis})",
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
        Rule("axis1", "name an axis of shape {shape} (got {axis1})", lambda p: is_axis(p, p["axis1"])),
        Rule("axis2", "name an axis of shape {shape} (got {axis2})", lambda p: is_axis(p, p["axis2"])),
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

OPERATORS = (RESHAPE, FLATTEN, EXPAND_DIMS, SQUEEZE, SWAPAXES, PERMUTE, BROADCAST_TO)
