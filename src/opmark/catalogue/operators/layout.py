"""Operators that move the elements of a tensor: transpose, flip, tile, depth_to_space, ..."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import AXIS_EXISTS, EXACT, SHAPE, elements, reference_in_numpy
from opmark.catalogue.operators._builders import torch
from opmark.catalogue.operators._layout import ADDED_UP, AXIS, IMAGES, NOTHING, call_with, moving_operator, x_only
from opmark.catalogue.operators.views import (
    AXES,
    AXES_EXIST,
    BROADCAST_PRESETS,
    BROADCASTS,
    TARGET,
    broadcast_adds,
    broadcast_elements,
    is_order,
    order,
)
from opmark.plugin import Launch, Operator, ParamRule, Params
from opmark.plugin.param import choice, counts, dtype, integer, real, shape, size
from opmark.schema.tensor import FLOATS

IMAGE = ParamRule("shape", "have 4 axes: N, C, H, W (got {shape})", lambda p: len(p["shape"]) == 4)


def _moves(p: Params) -> bool:
    """Return whether elements change places; otherwise there is no work to measure, which other systems overlook."""
    if not is_order(p):
        return True  # another rule refuses it
    long = [axis for axis in order(p) if p["shape"][axis] > 1]
    return long != sorted(long)


def _torch_transpose(p: Params, x: Any) -> Launch:
    axes = order(p)
    return lambda: x.permute(axes).contiguous()


TRANSPOSE = moving_operator(
    "transpose",
    "axes in another order, as a copy",
    params=(AXES,),
    rules=(
        AXES_EXIST,
        ParamRule("axes", "change the order of the axes of {shape} that are longer than 1 (got {axes})", _moves),
    ),
    reference=lambda p, x: x.transpose(order(p)).copy(),
    torch=torch(_torch_transpose, "torch.Tensor.contiguous"),
    gradient_view=True,
    aliases=("contiguous", "permute_copy", "transpose_copy"),
)

FLIP = moving_operator(
    "flip",
    "elements in reverse order along one axis",
    params=(AXIS,),
    rules=(AXIS_EXISTS,),
    reference=lambda p, x: np.flip(x, p["axis"]).copy(),
    torch=call_with("torch.flip", lambda p: ((p["axis"],),)),
    aliases=("reverse", "fliplr", "flipud"),
)

ROLL = moving_operator(
    "roll",
    "elements shifted along one axis, with wrap-around",
    params=(integer("shift", "number of places; negative: towards the first", 1), AXIS),
    rules=(AXIS_EXISTS,),
    reference=lambda p, x: np.roll(x, p["shift"], p["axis"]),
    torch=call_with("torch.roll", lambda p: (p["shift"], p["axis"])),
)

ROT90 = moving_operator(
    "rot90",
    "rotation by 90 degrees in the plane of the last two axes",
    params=(integer("k", "number of quarters", 1),),
    rules=(ParamRule("shape", "have at least 2 axes (got {shape})", lambda p: len(p["shape"]) >= 2),),
    reference=lambda p, x: np.rot90(x, p["k"], (-2, -1)).copy(),
    torch=call_with("torch.rot90", lambda p: (p["k"], (-2, -1))),
)


def _tiled_elements(p: Params) -> int:
    return elements(p) * prod(p["reps"])


def _repeated_elements(p: Params) -> int:
    return elements(p) * int(p["repeats"])


TILE = moving_operator(
    "tile",
    "the whole tensor several times along its axes, as torch's Tensor.repeat",
    params=(shape("reps", "repetitions along each axis; more than x has axes add new ones in front", [2, 2]),),
    presets={
        "small": {"shape": [128, 128]},
        "typical": {"shape": [1024, 1024]},
        "large": {"shape": [4096, 4096]},
    },
    out=_tiled_elements,
    backward_adds=lambda p: _tiled_elements(p) - elements(p),
    tolerance=ADDED_UP,
    reference=lambda p, x: np.tile(x, p["reps"]),
    torch=call_with("torch.tile", lambda p: (tuple(p["reps"]),)),
)

REPEAT = moving_operator(
    "repeat",
    "each element several times, one after the other, along one axis",
    params=(size("repeats", "how often", 2), AXIS),
    rules=(AXIS_EXISTS,),
    out=_repeated_elements,
    backward_adds=lambda p: _repeated_elements(p) - elements(p),
    tolerance=ADDED_UP,
    reference=lambda p, x: np.repeat(x, p["repeats"], p["axis"]),
    torch=call_with("torch.repeat_interleave", lambda p: (p["repeats"], p["axis"])),
    aliases=("repeat_interleave",),
)

BROADCAST_COPY = moving_operator(
    "broadcast_copy",
    "axes of length 1 repeated, as a copy; broadcast_to is the view",
    params=(TARGET,),
    rules=(BROADCASTS,),
    presets=BROADCAST_PRESETS,
    out=broadcast_elements,
    backward_adds=broadcast_adds,
    tolerance=ADDED_UP,
    reference=lambda p, x: np.broadcast_to(x, p["target"]).copy(),
    torch=call_with("torch.expand_copy", lambda p: (tuple(p["target"]),)),
    aliases=("expand_copy",),
)


def _block_divides(p: Params) -> bool:
    return len(p["shape"]) != 4 or p["shape"][1] % p["block"] ** 2 == 0


def _block_fits(p: Params) -> bool:
    return len(p["shape"]) != 4 or all(n % p["block"] == 0 for n in p["shape"][2:])


BLOCK = size("block", "edge of a block", 2)
ORDER = choice("order", "order of the channels: crd, block positions fastest (PyTorch); dcr, slowest (MXNet, ONNX)",
               ("crd", "dcr"), "crd")  # fmt: skip


def _to_space(p: Params, x: Any) -> Any:
    """Use only views, which work on arrays of both frameworks; `reshape` at the end copies."""
    (n, c, h, w), b = x.shape, p["block"]
    left = c // (b * b)
    if p["order"] == "crd":
        apart, axes = x.reshape(n, left, b, b, h, w), (0, 1, 4, 2, 5, 3)
    else:
        apart, axes = x.reshape(n, b, b, left, h, w), (0, 3, 4, 1, 5, 2)
    return _permute(apart, axes).reshape(n, left, h * b, w * b)


def _to_depth(p: Params, x: Any) -> Any:
    (n, c, h, w), b = x.shape, p["block"]
    apart = x.reshape(n, c, h // b, b, w // b, b)
    axes = (0, 1, 3, 5, 2, 4) if p["order"] == "crd" else (0, 3, 5, 1, 2, 4)
    return _permute(apart, axes).reshape(n, c * b * b, h // b, w // b)


def _permute(x: Any, axes: tuple[int, ...]) -> Any:
    return x.permute(axes) if hasattr(x, "permute") else x.transpose(axes)


def _torch_to_space(p: Params, x: Any) -> Launch:
    from torch.nn.functional import pixel_shuffle

    return partial(pixel_shuffle, x, p["block"]) if p["order"] == "crd" else partial(_to_space, p, x)


def _torch_to_depth(p: Params, x: Any) -> Launch:
    from torch.nn.functional import pixel_unshuffle

    return partial(pixel_unshuffle, x, p["block"]) if p["order"] == "crd" else partial(_to_depth, p, x)


BIGGER_BLOCK = ParamRule("block", "be at least 2 (got {block})", lambda p: p["block"] >= 2)

DEPTH_TO_SPACE = moving_operator(
    "depth_to_space",
    "channels become blocks of an image: [N, C b b, H, W] to [N, C, H b, W b]",
    params=(BLOCK, ORDER),
    presets=IMAGES,
    rules=(IMAGE, BIGGER_BLOCK, ParamRule("block", "have a square that divides the channels of {shape} (got {block})",
                                     _block_divides)),
    reference=_to_space,
    torch=torch(_torch_to_space, "torch.nn.functional.pixel_shuffle"),
    aliases=("pixel_shuffle",),
)  # fmt: skip

SPACE_TO_DEPTH = moving_operator(
    "space_to_depth",
    "blocks of an image become channels: [N, C, H b, W b] to [N, C b b, H, W]",
    params=(BLOCK, ORDER),
    presets=IMAGES,
    rules=(IMAGE, BIGGER_BLOCK, ParamRule("block", "divide height and width of {shape} (got {block})", _block_fits)),
    reference=_to_depth,
    torch=torch(_torch_to_depth, "torch.nn.functional.pixel_unshuffle"),
    aliases=("pixel_unshuffle",),
)


def _shuffle(p: Params, x: Any) -> Any:
    n, c, *image = x.shape
    apart = x.reshape(n, p["groups"], c // p["groups"], *image)
    return _permute(apart, (0, 2, 1, *range(3, apart.ndim))).reshape(x.shape)


CHANNEL_SHUFFLE = moving_operator(
    "channel_shuffle",
    "channels of groups mixed, as in ShuffleNet: [N, g c, H, W] to [N, c g, H, W]",
    params=(size("groups", "number of groups", 4),),
    presets=IMAGES,
    rules=(
        IMAGE,
        ParamRule("groups", "divide the channels of {shape} (got {groups})",
             lambda p: p["shape"][1] % p["groups"] == 0),
        ParamRule("groups", "be more than 1 and fewer than the channels of {shape}, or nothing is mixed (got {groups})",
             lambda p: 1 < p["groups"] < p["shape"][1]),
    ),
    reference=_shuffle,
    torch=call_with("torch.nn.functional.channel_shuffle", lambda p: (p["groups"],)),
)  # fmt: skip


def _describe_operator(name: str, summary: str, reference: Any, tensor: Any) -> Operator:
    """Make an operator that returns facts about x that the host knows: no element is read."""

    def build(p: Params, x: Any) -> Launch:
        import torch as framework

        return lambda: framework.tensor(tensor(x))

    return Operator(
        name=name,
        summary=summary,
        category="shaping",
        params=(SHAPE, dtype(*FLOATS)),
        inputs=x_only,
        cost=lambda _: NOTHING,
        reference=reference,
        presets=IMAGES,
        tolerance=EXACT,
        implementations=(reference_in_numpy(reference), torch(build)),
        result_dtype=lambda _: "int64",
        result="constant",
        view=True,
    )


SHAPE_ARRAY = _describe_operator(
    "shape_array",
    "the shape of a tensor, as a tensor; its elements are not read",
    lambda p, x: np.array(x.shape, np.int64),
    lambda x: x.shape,
)

SIZE_ARRAY = _describe_operator(
    "size_array",
    "the number of elements of a tensor, as a tensor; its elements are not read",
    lambda p, x: np.array([x.size], np.int64),
    lambda x: [x.numel()],
)


# pad: add elements around a tensor.

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""Torch's names of the modes, and NumPy's."""


def _fits(p: Params) -> bool:
    return bool(p["before"]) and len(p["before"]) <= len(p["shape"])


def _widths(p: Params) -> list[tuple[int, int]]:
    """Return (before, after) for every axis of the shape."""
    padded = list(zip(p["before"], p["after"], strict=True))
    return [(0, 0)] * (len(p["shape"]) - len(padded)) + padded


def _padded_elements(p: Params) -> int:
    return prod(n + sum(width) for n, width in zip(p["shape"], _widths(p), strict=True))


def _within(p: Params) -> bool:
    """Return whether torch can pad: it reflects at most all but one element, and wraps around at most once."""
    most = {"reflect": -1, "circular": 0}.get(p["mode"])
    if most is None or not _fits(p) or len(p["before"]) != len(p["after"]):
        return True
    return all(max(width) <= n + most for n, width in zip(p["shape"], _widths(p), strict=True) if any(width))


def _torch_takes(p: Params) -> bool:
    axes = len(p["before"])
    return p["mode"] == "constant" or (axes <= 3 and len(p["shape"]) - axes in (1, 2))


def _reference(p: Params, x: Any) -> Any:
    more = {"constant_values": p["value"]} if p["mode"] == "constant" else {}
    return np.pad(x, _widths(p), MODES[p["mode"]], **more)


def _torch_pad(p: Params, x: Any) -> Launch:
    from torch.nn.functional import pad

    # torch takes the widths from the last axis to the first.
    flat = [n for pair in zip(reversed(p["before"]), reversed(p["after"]), strict=True) for n in pair]
    return partial(pad, x, flat, p["mode"], p["value"] if p["mode"] == "constant" else None)


def _adds(p: Params) -> int:
    return 0 if p["mode"] == "constant" else _padded_elements(p) - elements(p)


PAD = moving_operator(
    "pad",
    "x with elements added before and after, along the last axes",
    params=(
        counts("before", "elements before, for each of the last axes", [1, 1]),
        counts("after", "elements after, for each of the last axes", [1, 1]),
        choice("mode", "the added elements: a constant, or elements of x", tuple(MODES), "constant"),
        real("value", "the constant", 0.0),
    ),
    presets={
        "small": {"shape": [2, 16, 32, 32]},
        "typical": {"shape": [8, 64, 64, 64]},
        "large": {"shape": [32, 256, 64, 64]},
    },
    rules=(
        ParamRule("before", "have one number for each padded axis, at most as many as {shape} has (got {before})",
             _fits),
        ParamRule("after", "have as many numbers as before {before} (got {after})",
             lambda p: len(p["after"]) == len(p["before"])),
        ParamRule("before", "add something, here or after (got {before} and {after})",
             lambda p: any((*p["before"], *p["after"]))),
        ParamRule("mode", "be constant unless the last 1 to 3 axes of a shape with 1 or 2 more axes are padded "
             "(got {mode}, {before} of {shape})", _torch_takes),
        ParamRule("before", "be less than the axis for reflect, at most the axis for circular "
             "(got {before} and {after} around {shape})", _within),
    ),
    dtypes=FLOATS,
    out=_padded_elements,
    # The gradient of the constant elements is not read.
    backward_reads=lambda p: elements(p) if p["mode"] == "constant" else _padded_elements(p),
    backward_adds=_adds,
    tolerance=ADDED_UP,
    reference=_reference,
    torch=torch(_torch_pad, "torch.nn.functional.pad"),
    aliases=("Pad", "constant_pad_nd", "reflection_pad", "replication_pad", "circular_pad"),
)  # fmt: skip


OPERATORS = (
    TRANSPOSE,
    FLIP,
    ROLL,
    ROT90,
    TILE,
    REPEAT,
    BROADCAST_COPY,
    DEPTH_TO_SPACE,
    SPACE_TO_DEPTH,
    CHANNEL_SHUFFLE,
    SHAPE_ARRAY,
    SIZE_ARRAY,
    PAD,
)
