"""Transposed convolutions: conv_transpose1d, conv_transpose2d, conv_transpose3d."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula, torch
from opmark.operators._windows import AXES, has_axes, torch_function
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.operator import sum_of_products
from opmark.schema.param import dtype, integer, shape, size


def _full_sizes(p: Params) -> tuple[int, ...]:
    """Return the sizes of the output before `padding` is cut off on both sides."""
    stride, dilation, more = p["stride"], p["dilation"], p["output_padding"]
    return tuple(
        int((n - 1) * stride + dilation * (k - 1) + 1 + more) for n, k in zip(p["image"], p["kernel"], strict=True)
    )


def out_sizes(p: Params) -> tuple[int, ...]:
    return tuple(n - 2 * p["padding"] for n in _full_sizes(p))


def _inputs(p: Params) -> dict[str, TensorSpec]:
    return {
        "x": TensorSpec((p["batch"], p["in_channels"], *p["image"]), p["dtype"]),
        "weight": TensorSpec((p["in_channels"], p["out_channels"] // p["groups"], *p["kernel"]), p["dtype"]),
    }


def _flops(p: Params) -> int:
    """Each input element is multiplied with each weight of its channel and added to the output."""
    return int(2 * p["batch"] * prod(p["image"]) * p["in_channels"] * p["out_channels"] // p["groups"]
               * prod(p["kernel"]))  # fmt: skip


def _cost(p: Params) -> Cost:
    outputs = p["batch"] * p["out_channels"] * prod(out_sizes(p))
    return Cost(_flops(p), nbytes(_inputs(p).values()), outputs * sizeof(p["dtype"]))


def _backward_cost(p: Params) -> Cost:
    """Each of the two gradients takes as many flops as the forward pass."""
    forward = _cost(p)
    return Cost(2 * _flops(p), forward.bytes_read + forward.bytes_written, forward.bytes_read)


def _terms(p: Params) -> int:
    """Return the products that are added up in one output element: kernel elements `stride` apart in the output."""
    apart = max(1, p["stride"] // p["dilation"])
    return int(p["in_channels"] // p["groups"] * prod(-(-k // apart) for k in p["kernel"]))


def _reference(p: Params, x: Any, weight: Any) -> Any:
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
    return out[inner].reshape(batch, p["out_channels"], *out_sizes(p))


RULES = (
    Rule("groups", "divide in_channels={in_channels} (got {groups})", lambda p: p["in_channels"] % p["groups"] == 0),
    Rule("groups", "divide out_channels={out_channels} (got {groups})",
         lambda p: p["out_channels"] % p["groups"] == 0),
    Rule("output_padding", "be less than stride={stride} or dilation={dilation} (got {output_padding})",
         lambda p: p["output_padding"] < max(p["stride"], p["dilation"])),
    Rule("padding", "leave at least one element of the output of {image} with kernel {kernel} (got {padding})",
         lambda p: min(out_sizes(p)) >= 1),
)  # fmt: skip


def _operator(dims: int, presets: dict[str, dict[str, Any]], aliases: tuple[str, ...]) -> Operator:
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
        inputs=_inputs,
        cost=_cost,
        backward_cost=_backward_cost,
        reference=_reference,
        tolerance=sum_of_products(_terms),
        presets=presets,
        rules=(has_axes("image", dims), has_axes("kernel", dims), *RULES),
        gradients=("x", "weight"),
        implementations=(formula(_reference), torch(build, f"torch.nn.functional.{name}")),
        aliases=aliases,
    )


def _preset(batch: int, channels: int, image: list[int], out: int) -> dict[str, Any]:
    return {"batch": batch, "in_channels": channels, "image": image, "out_channels": out}


CONV_TRANSPOSE1D = _operator(
    1,
    {
        "small": _preset(2, 16, [128], 16),
        "typical": _preset(16, 128, [512], 128),
        "large": _preset(32, 256, [2048], 256),
    },
    ("Conv1DTranspose", "ConvTranspose1d"),
)
CONV_TRANSPOSE2D = _operator(
    2,
    {
        "small": _preset(1, 16, [16, 16], 16),
        "typical": _preset(8, 64, [28, 28], 64),
        "large": _preset(32, 128, [56, 56], 128),
    },
    ("Deconvolution", "Conv2DTranspose", "ConvTranspose2d", "conv2d_transpose"),
)
CONV_TRANSPOSE3D = _operator(
    3,
    {
        "small": _preset(1, 8, [4, 6, 6], 8),
        "typical": _preset(2, 32, [8, 14, 14], 32),
        "large": _preset(8, 64, [8, 28, 28], 64),
    },
    ("Conv3DTranspose", "ConvTranspose3d"),
)

OPERATORS = (CONV_TRANSPOSE1D, CONV_TRANSPOSE2D, CONV_TRANSPOSE3D)
