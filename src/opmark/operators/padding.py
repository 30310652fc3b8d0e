"""pad: add elements around a tensor."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._axis import elements
from opmark.operators._build import torch
from opmark.operators._moving import ADDED_UP, moving_operator
from opmark.schema import Launch, Params, Rule
from opmark.schema.dtype import FLOATS
from opmark.schema.param import choice, counts, real

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
        Rule("before", "have one number for each padded axis, at most as many as {shape} has (got {before})", _fits),
        Rule("after", "have as many numbers as before {before} (got {after})",
             lambda p: len(p["after"]) == len(p["before"])),
        Rule("before", "add something, here or after (got {before} and {after})",
             lambda p: any((*p["before"], *p["after"]))),
        Rule("mode", "be constant unless the last 1 to 3 axes of a shape with 1 or 2 more axes are padded "
             "(got {mode}, {before} of {shape})", _torch_takes),
        Rule("before", "be less than the axis for reflect, at most the axis for circular "
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

OPERATORS = (PAD,)
