"""Convolutions over one, two and three axes: plain, grouped, depthwise, pointwise and transposed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, torch
from opmark.catalogue.operators._window import (
    AXES,
    FITS,
    columns,
    covered_elements,
    has_axes,
    out_sizes,
    pad_image,
    torch_function,
    window_values,
)
from opmark.plugin import Launch, Operator, Param, ParamRule, Params
from opmark.plugin.operator import sum_of_products
from opmark.plugin.param import dtype, integer, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS, sizeof


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
    """Only the elements of the image that lie in a window are read."""
    n, covered = _outputs(p), p["batch"] * p["in_channels"] * covered_elements(p)
    read = covered * sizeof(p["dtype"]) + _inputs(p)["weight"].nbytes
    return Cost(2 * n * _terms(p), read, n * sizeof(p["dtype"]))


def _backward_cost(p: Params) -> Cost:
    """Each of the two gradients takes as many flops as the forward pass; that of the image is written as a whole."""
    forward = _cost(p)
    gradients = nbytes(_inputs(p).values())
    return Cost(4 * _outputs(p) * _terms(p), forward.bytes_read + forward.bytes_written, gradients)


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
class _ConvolutionRow:
    name: str
    summary: str
    dims: int
    params: tuple[Param, ...]
    presets: Mapping[str, Mapping[str, Any]]
    aliases: tuple[str, ...]
    rules: tuple[ParamRule, ...]
    general: Callable[[Params], Params] = lambda p: p
    """Returns the parameters of the general convolution that equals this one."""


def _operator(row: _ConvolutionRow) -> Operator:
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
    ParamRule("groups", "divide in_channels={in_channels} (got {groups})",
         lambda p: p["in_channels"] % p["groups"] == 0),
    ParamRule("groups", "divide out_channels={out_channels} (got {groups})",
         lambda p: p["out_channels"] % p["groups"] == 0),
)  # fmt: skip


def _rules(dims: int) -> tuple[ParamRule, ...]:
    return (has_axes("image", dims), has_axes("kernel", dims))


def _general(dims: int, groups: Param = GROUPS) -> tuple[Param, ...]:
    return (BATCH, IN_CHANNELS, _image(dims), OUT_CHANNELS, *_window(dims), groups, dtype(*FLOATS))


def _preset(batch: int, channels: int, image: list[int], out: int, **more: Any) -> dict[str, Any]:
    return {"batch": batch, "in_channels": channels, "image": image, "out_channels": out, **more}


CONV1D = _operator(_ConvolutionRow(
    "conv1d", "one-dimensional convolution, channels first, no bias", 1, _general(1),
    {
        "small": _preset(2, 16, [256], 16),
        "typical": _preset(8, 128, [512], 128),
        "large": _preset(32, 256, [4096], 256),
    },
    ("Conv1D", "Conv1d"), (*_rules(1), *GROUPS_DIVIDE, FITS),
))  # fmt: skip

CONV2D = _operator(_ConvolutionRow(
    "conv2d", "two-dimensional convolution, channels first, no bias", 2, _general(2),
    {
        "small": _preset(1, 16, [32, 32], 16),
        "typical": _preset(8, 64, [56, 56], 64),
        "large": _preset(32, 128, [56, 56], 128),
    },
    ("Convolution", "Conv2D", "Conv2d", "convolution"), (*_rules(2), *GROUPS_DIVIDE, FITS),
))  # fmt: skip

CONV3D = _operator(_ConvolutionRow(
    "conv3d", "three-dimensional convolution, channels first, no bias", 3, _general(3),
    {
        "small": _preset(1, 8, [6, 12, 12], 8),
        "typical": _preset(2, 32, [8, 28, 28], 32),
        "large": _preset(8, 64, [16, 56, 56], 64),
    },
    ("Conv3D", "Conv3d"), (*_rules(3), *GROUPS_DIVIDE, FITS),
))  # fmt: skip

GROUPED = _operator(_ConvolutionRow(
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


DEPTHWISE = _operator(_ConvolutionRow(
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

POINTWISE = _operator(_ConvolutionRow(
    "pointwise_conv2d", "two-dimensional convolution with a kernel of 1 x 1, no bias", 2,
    (BATCH, IN_CHANNELS, _image(2), OUT_CHANNELS, dtype(*FLOATS)),
    {
        "small": _preset(1, 16, [32, 32], 32),
        "typical": _preset(8, 128, [28, 28], 256),
        "large": _preset(64, 256, [56, 56], 256),
    },
    ("conv1x1", "pointwise_convolution"), (has_axes("image", 2),), lambda p: {**p, **_ONE_BY_ONE},
))  # fmt: skip


# Transposed convolutions: conv_transpose1d, conv_transpose2d, conv_transpose3d.


def _full_sizes(p: Params) -> tuple[int, ...]:
    """Return the sizes of the output before `padding` is cut off on both sides."""
    stride, dilation, more = p["stride"], p["dilation"], p["output_padding"]
    return tuple(
        int((n - 1) * stride + dilation * (k - 1) + 1 + more) for n, k in zip(p["image"], p["kernel"], strict=True)
    )


def transposed_out_sizes(p: Params) -> tuple[int, ...]:
    return tuple(n - 2 * p["padding"] for n in _full_sizes(p))


def _transposed_inputs(p: Params) -> dict[str, TensorSpec]:
    return {
        "x": TensorSpec((p["batch"], p["in_channels"], *p["image"]), p["dtype"]),
        "weight": TensorSpec((p["in_channels"], p["out_channels"] // p["groups"], *p["kernel"]), p["dtype"]),
    }


def _flops(p: Params) -> int:
    """Each input element is multiplied with each weight of its channel and added to the output."""
    return int(2 * p["batch"] * prod(p["image"]) * p["in_channels"] * p["out_channels"] // p["groups"]
               * prod(p["kernel"]))  # fmt: skip


def _transposed_cost(p: Params) -> Cost:
    outputs = p["batch"] * p["out_channels"] * prod(transposed_out_sizes(p))
    return Cost(_flops(p), nbytes(_transposed_inputs(p).values()), outputs * sizeof(p["dtype"]))


def _transposed_backward_cost(p: Params) -> Cost:
    """Each of the two gradients takes as many flops as the forward pass."""
    forward = _transposed_cost(p)
    return Cost(2 * _flops(p), forward.bytes_read + forward.bytes_written, forward.bytes_read)


def _transposed_terms(p: Params) -> int:
    """Return the products that are added up in one output element: kernel elements `stride` apart in the output."""
    apart = max(1, p["stride"] // p["dilation"])
    return int(p["in_channels"] // p["groups"] * prod(-(-k // apart) for k in p["kernel"]))


def _transposed_reference(p: Params, x: Any, weight: Any) -> Any:
    """Add the image, times one kernel element at a time, to the output, then cut off the padding."""
    batch, groups, image = p["batch"], p["groups"], p["image"]
    stride, cut = p["stride"], p["padding"]
    out = np.zeros((batch, groups, p["out_channels"] // groups, *_full_sizes(p)), x.dtype)
    flat = x.reshape(batch, groups, -1, prod(image))
    weight = weight.reshape(groups, p["in_channels"] // groups, -1, *p["kernel"])
    for at in np.ndindex(*p["kernel"]):
        element = (..., *at)
        part = (weight[element].swapaxes(1, 2) @ flat).reshape(*out.shape[:3], *image)
        starts = [p["dilation"] * i for i in at]
        where = (..., *(slice(s, s + stride * (n - 1) + 1, stride) for s, n in zip(starts, image, strict=True)))
        out[where] += part
    inner = (..., *(slice(cut, n - cut) for n in _full_sizes(p)))
    return out[inner].reshape(batch, p["out_channels"], *transposed_out_sizes(p))


RULES = (
    ParamRule("groups", "divide in_channels={in_channels} (got {groups})",
         lambda p: p["in_channels"] % p["groups"] == 0),
    ParamRule("groups", "divide out_channels={out_channels} (got {groups})",
         lambda p: p["out_channels"] % p["groups"] == 0),
    ParamRule("output_padding", "be less than stride={stride} or dilation={dilation} (got {output_padding})",
         lambda p: p["output_padding"] < max(p["stride"], p["dilation"])),
    ParamRule("padding", "leave at least one element of the output of {image} with kernel {kernel} (got {padding})",
         lambda p: min(transposed_out_sizes(p)) >= 1),
)  # fmt: skip


def _transposed_operator(dims: int, presets: dict[str, dict[str, Any]], aliases: tuple[str, ...]) -> Operator:
    name = f"conv_transpose{dims}d"

    def build(p: Params, x: Any, weight: Any) -> Launch:
        options = {key: p[key] for key in ("stride", "padding", "output_padding", "groups", "dilation")}
        return partial(torch_function(name), x, weight, None, **options)

    return Operator(
        name=name,
        summary=f"transposed convolution over {AXES[dims]}, channels first, no bias",
        category="convolution",
        params=(
            size("batch", "images"),
            size("in_channels", "channels of the input"),
            shape("image", f"{AXES[dims]} of the input"),
            size("out_channels", "channels of the output"),
            shape("kernel", f"{AXES[dims]} of the kernel", [3] * dims),
            size("stride", "step in the output between two elements of the input", 2),
            integer("padding", "elements cut off on each side of the output", 1, kind="count"),
            integer("output_padding", "additional elements on one side of the output", 0, kind="count"),
            size("dilation", "step between two elements of the kernel", 1),
            size("groups", "independent groups of channels", 1),
            dtype(*FLOATS),
        ),
        inputs=_transposed_inputs,
        cost=_transposed_cost,
        backward_cost=_transposed_backward_cost,
        reference=_transposed_reference,
        tolerance=sum_of_products(_transposed_terms),
        presets=presets,
        rules=(has_axes("image", dims), has_axes("kernel", dims), *RULES),
        gradients=("x", "weight"),
        implementations=(formula(_transposed_reference), torch(build, f"torch.nn.functional.{name}")),
        aliases=aliases,
    )


def _transposed_preset(batch: int, channels: int, image: list[int], out: int) -> dict[str, Any]:
    return {"batch": batch, "in_channels": channels, "image": image, "out_channels": out}


CONV_TRANSPOSE1D = _transposed_operator(
    1,
    {
        "small": _transposed_preset(2, 16, [128], 16),
        "typical": _transposed_preset(16, 128, [512], 128),
        "large": _transposed_preset(32, 256, [2048], 256),
    },
    ("Conv1DTranspose", "ConvTranspose1d"),
)
CONV_TRANSPOSE2D = _transposed_operator(
    2,
    {
        "small": _transposed_preset(1, 16, [16, 16], 16),
        "typical": _transposed_preset(8, 64, [28, 28], 64),
        "large": _transposed_preset(32, 128, [56, 56], 128),
    },
    ("Deconvolution", "Conv2DTranspose", "ConvTranspose2d", "conv2d_transpose"),
)
CONV_TRANSPOSE3D = _transposed_operator(
    3,
    {
        "small": _transposed_preset(1, 8, [4, 6, 6], 8),
        "typical": _transposed_preset(2, 32, [8, 14, 14], 32),
        "large": _transposed_preset(8, 64, [8, 28, 28], 64),
    },
    ("Conv3DTranspose", "ConvTranspose3d"),
)


OPERATORS = (
    CONV1D,
    CONV2D,
    CONV3D,
    GROUPED,
    DEPTHWISE,
    POINTWISE,
    CONV_TRANSPOSE1D,
    CONV_TRANSPOSE2D,
    CONV_TRANSPOSE3D,
)
