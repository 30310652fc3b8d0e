"""Convolutions: conv1d, conv2d, conv3d, and the grouped, depthwise and pointwise ones over two axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula, torch
from opmark.operators._windows import AXES, FITS, columns, has_axes, out_sizes, pad_image, torch_function, window_values
from opmark.schema import Cost, Launch, Operator, Param, Params, Rule, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.operator import sum_of_products
from opmark.schema.param import dtype, integer, shape, size


def _inputs(p: Params) -> dict[str, TensorSpec]:
    return {
        "x": TensorSpec((p["batch"], p["in_channels"], *p["image"]), p["dtype"]),
        "weight": TensorSpec((p["out_channels"], p["in_channels"] // p["groups"], *p["kernel"]), p["dtype"]),
    }


def _terms(p: Params) -> int:
    """Return the number of products that are added up for one output element."""
    return int(p["in_channels"] // p["groups"] * prod(p["kernel"]))


def _outputs(p: Params) -> int:
    return int(p["batch"] * p["out_channels"] * prod(out_sizes(p)))


def _cost(p: Params) -> Cost:
    n = _outputs(p)
    return Cost(2 * n * _terms(p), nbytes(_inputs(p).values()), n * sizeof(p["dtype"]))


def _backward_cost(p: Params) -> Cost:
    """Each of the two gradients takes as many flops as the forward pass."""
    forward = _cost(p)
    return Cost(4 * _outputs(p) * _terms(p), forward.bytes_read + forward.bytes_written, forward.bytes_read)


def _reference(p: Params, x: Any, weight: Any) -> Any:
    """Add up one kernel element at a time: slow, but simple."""
    batch, groups, sizes = p["batch"], p["groups"], out_sizes(p)
    out = np.zeros((batch, groups, p["out_channels"] // groups, prod(sizes)))
    x = pad_image(p, x)
    weight = weight.reshape(groups, p["out_channels"] // groups, -1, *p["kernel"])
    for at in np.ndindex(*p["kernel"]):
        element = (..., *at)
        out += weight[element] @ window_values(p, x, at, sizes).reshape(batch, groups, -1, prod(sizes))
    return out.reshape(batch, p["out_channels"], *sizes)


def _by_columns(p: Params, x: Any, weight: Any) -> Any:
    """Unfold the image into columns, then compute one matrix product per group."""
    groups, sizes = p["groups"], out_sizes(p)
    rows = weight.reshape(groups, p["out_channels"] // groups, -1)
    unfolded = columns(p, pad_image(p, x)).reshape(p["batch"], groups, rows.shape[2], -1)
    return (rows @ unfolded).reshape(p["batch"], p["out_channels"], *sizes)


@dataclass(frozen=True)
class _Row:
    name: str
    summary: str
    dims: int
    params: tuple[Param, ...]
    presets: Mapping[str, Mapping[str, Any]]
    aliases: tuple[str, ...]
    rules: tuple[Rule, ...]
    general: Callable[[Params], Params] = lambda p: p
    """Returns the parameters of the general convolution that equals this one."""


def _operator(row: _Row) -> Operator:
    function, general = f"conv{row.dims}d", row.general

    def build(p: Params, x: Any, weight: Any) -> Launch:
        options = {key: general(p)[key] for key in ("stride", "padding", "dilation", "groups")}
        return partial(torch_function(function), x, weight, None, **options)

    return Operator(
        name=row.name,
        summary=row.summary,
        category="convolution",
        params=row.params,
        inputs=lambda p: _inputs(general(p)),
        cost=lambda p: _cost(general(p)),
        backward_cost=lambda p: _backward_cost(general(p)),
        reference=lambda p, x, weight: _reference(general(p), x, weight),
        tolerance=sum_of_products(lambda p: _terms(general(p))),
        presets=row.presets,
        rules=row.rules,
        gradients=("x", "weight"),
        implementations=(
            formula(lambda p, x, weight: _by_columns(general(p), x, weight)),
            torch(build, f"torch.nn.functional.{function}"),
        ),
        aliases=row.aliases,
    )


def _image(dims: int) -> Param:
    return shape("image", f"{AXES[dims]} of the input")


def _window(dims: int) -> tuple[Param, ...]:
    return (
        shape("kernel", f"{AXES[dims]} of the kernel", [3] * dims),
        size("stride", "step between two windows", 1),
        integer("padding", "zeros on each side of the image", 1, kind="count"),
        size("dilation", "step between two elements of the kernel", 1),
    )


BATCH = size("batch", "images")
IN_CHANNELS = size("in_channels", "channels of the input")
OUT_CHANNELS = size("out_channels", "channels of the output")
GROUPS = size("groups", "independent groups of channels; as many as channels: depthwise", 1)
GROUPS_DIVIDE = (
    Rule("groups", "divide in_channels={in_channels} (got {groups})", lambda p: p["in_channels"] % p["groups"] == 0),
    Rule("groups", "divide out_channels={out_channels} (got {groups})",
         lambda p: p["out_channels"] % p["groups"] == 0),
)  # fmt: skip


def _rules(dims: int) -> tuple[Rule, ...]:
    return (has_axes("image", dims), has_axes("kernel", dims))


def _general(dims: int, groups: Param = GROUPS) -> tuple[Param, ...]:
    return (BATCH, IN_CHANNELS, _image(dims), OUT_CHANNELS, *_window(dims), groups, dtype(*FLOATS))


def _preset(batch: int, channels: int, image: list[int], out: int, **more: Any) -> dict[str, Any]:
    return {"batch": batch, "in_channels": channels, "image": image, "out_channels": out, **more}


CONV1D = _operator(_Row(
    "conv1d", "one-dimensional convolution, channels first, no bias", 1, _general(1),
    {
        "small": _preset(2, 16, [256], 16),
        "typical": _preset(8, 128, [512], 128),
        "large": _preset(32, 256, [4096], 256),
    },
    ("Conv1D", "Conv1d"), (*_rules(1), *GROUPS_DIVIDE, FITS),
))  # fmt: skip

CONV2D = _operator(_Row(
    "conv2d", "two-dimensional convolution, channels first, no bias", 2, _general(2),
    {
        "small": _preset(1, 16, [32, 32], 16),
        "typical": _preset(8, 64, [56, 56], 64),
        "large": _preset(32, 128, [56, 56], 128),
    },
    ("Convolution", "Conv2D", "Conv2d", "convolution"), (*_rules(2), *GROUPS_DIVIDE, FITS),
))  # fmt: skip

CONV3D = _operator(_Row(
    "conv3d", "three-dimensional convolution, channels first, no bias", 3, _general(3),
    {
        "small": _preset(1, 8, [6, 12, 12], 8),
        "typical": _preset(2, 32, [8, 28, 28], 32),
        "large": _preset(8, 64, [16, 56, 56], 64),
    },
    ("Conv3D", "Conv3d"), (*_rules(3), *GROUPS_DIVIDE, FITS),
))  # fmt: skip

GROUPED = _operator(_Row(
    "grouped_conv2d", "two-dimensional convolution of each group of channels by itself, no bias", 2,
    _general(2, size("groups", "independent groups of channels")),
    {
        "small": _preset(1, 32, [28, 28], 32, groups=4),
        "typical": _preset(8, 128, [56, 56], 128, groups=32),
        "large": _preset(32, 256, [56, 56], 256, groups=32),
    },
    ("group_conv2d",), (*_rules(2), *GROUPS_DIVIDE, FITS),
))  # fmt: skip


def _depthwise(p: Params) -> Params:
    channels = p["channels"]
    return {**p, "in_channels": channels, "out_channels": channels * p["multiplier"], "groups": channels}


DEPTHWISE = _operator(_Row(
    "depthwise_conv2d", "two-dimensional convolution of each channel by itself, no bias", 2,
    (BATCH, size("channels", "channels of the input"), _image(2),
     size("multiplier", "channels of the output for each of the input", 1), *_window(2), dtype(*FLOATS)),
    {
        "small": {"batch": 1, "channels": 32, "image": [32, 32]},
        "typical": {"batch": 8, "channels": 128, "image": [56, 56]},
        "large": {"batch": 64, "channels": 256, "image": [56, 56]},
    },
    ("DepthwiseConv2D", "depthwise_convolution"), (*_rules(2), FITS), _depthwise,
))  # fmt: skip

_ONE_BY_ONE = {"kernel": (1, 1), "stride": 1, "padding": 0, "dilation": 1, "groups": 1}

POINTWISE = _operator(_Row(
    "pointwise_conv2d", "two-dimensional convolution with a kernel of 1 x 1, no bias", 2,
    (BATCH, IN_CHANNELS, _image(2), OUT_CHANNELS, dtype(*FLOATS)),
    {
        "small": _preset(1, 16, [32, 32], 32),
        "typical": _preset(8, 128, [28, 28], 256),
        "large": _preset(64, 256, [56, 56], 256),
    },
    ("conv1x1", "pointwise_convolution"), (has_axes("image", 2),), lambda p: {**p, **_ONE_BY_ONE},
))  # fmt: skip

OPERATORS = (CONV1D, CONV2D, CONV3D, GROUPED, DEPTHWISE, POINTWISE)
