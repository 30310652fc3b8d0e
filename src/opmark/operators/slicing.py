"""Views of parts of a tensor: slices, diagonals, windows."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._axis import AXIS_EXISTS, elements
from opmark.operators._build import torch
from opmark.operators._moving import ADDED_UP, AXIS, call_with, view_operator
from opmark.schema import Launch, Params, Rule
from opmark.schema.param import counts, integer, shape, size


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
        Rule("end", "be at most the length of axis {axis} of {shape} (got {end})",
             lambda p: p["end"] <= p["shape"][p["axis"]]),
        Rule("begin", "be less than end {end} (got {begin})", lambda p: p["begin"] < p["end"]),
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
        Rule("length", "end within axis {axis} of {shape} (got {length} from {start} on)",
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
        Rule("shape", "have at least 2 axes (got {shape})", lambda p: len(p["shape"]) >= 2),
        Rule("index", "be less than the length of axis {axis} of {shape} (got {index})",
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
        Rule("shape", "have at least 2 axes (got {shape})", lambda p: len(p["shape"]) >= 2),
        Rule("k", "name a diagonal of the last two axes of {shape} (got {k})", lambda p: diagonal_length(p) > 0),
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
    rules=(AXIS_EXISTS, Rule("length", "be at most the length of axis {axis} of {shape} (got {length})",
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
        Rule("strides", "have one number for each axis of size {size} (got {strides})",
             lambda p: len(p["strides"]) == len(p["size"])),
        Rule("size", "stay within the elements of shape {shape} (got {size})", lambda p: _last_place(p) < elements(p)),
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

OPERATORS = (SLICE, NARROW, SELECT, DIAGONAL, UNFOLD, AS_STRIDED)
