"""Convolutions: conv2d."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.operators import _numpy as np
from opmark.schema import Cost, Implementation, Launch, Operator, Params, Rule, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.operator import sum_of_products
from opmark.schema.param import dtype, integer, shape, size


def _out_size(p: Params, axis: int) -> int:
    reach = p["dilation"] * (p["kernel"][axis] - 1) + 1
    return int((p["image"][axis] + 2 * p["padding"] - reach) // p["stride"] + 1)


def _inputs(p: Params) -> dict[str, TensorSpec]:
    return {
        "x": TensorSpec((p["batch"], p["in_channels"], *p["image"]), p["dtype"]),
        "weight": TensorSpec((p["out_channels"], p["in_channels"] // p["groups"], *p["kernel"]), p["dtype"]),
    }


def _terms(p: Params) -> int:
    """Products that are added up for one output element."""
    return int(p["in_channels"] // p["groups"] * p["kernel"][0] * p["kernel"][1])


def _outputs(p: Params) -> int:
    return int(p["batch"] * p["out_channels"] * _out_size(p, 0) * _out_size(p, 1))


def _cost(p: Params) -> Cost:
    n = _outputs(p)
    return Cost(2 * n * _terms(p), nbytes(_inputs(p).values()), n * sizeof(p["dtype"]))


def _backward_cost(p: Params) -> Cost:
    """A product for each of the two gradients, as large as the forward one."""
    forward = _cost(p)
    return Cost(2 * forward.flops, forward.bytes_read + forward.bytes_written, forward.bytes_read)


def _padded(p: Params, x: Any) -> Any:
    pad = p["padding"]
    return np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))


def _reference(p: Params, x: Any, weight: Any) -> Any:
    """Adds up one kernel element at a time; slow and plain on purpose."""
    x, stride, height, width = _padded(p, x), p["stride"], _out_size(p, 0), _out_size(p, 1)
    groups = p["groups"]
    out = np.zeros((p["batch"], groups, p["out_channels"] // groups, height, width))
    x = x.reshape(p["batch"], groups, -1, *x.shape[2:])
    weight = weight.reshape(groups, p["out_channels"] // groups, -1, *p["kernel"])
    for i in range(p["kernel"][0]):
        for j in range(p["kernel"][1]):
            top, left = i * p["dilation"], j * p["dilation"]
            seen = x[..., top : top + stride * height : stride, left : left + stride * width : stride]
            out += np.einsum("bgchw,gkc->bgkhw", seen, weight[..., i, j], optimize=True)
    return out.reshape(p["batch"], p["out_channels"], height, width)


def _numpy(p: Params, x: Any, weight: Any) -> Launch:
    """Unfolds the image into columns, then one matrix product a group."""
    groups, stride, dilation = p["groups"], p["stride"], p["dilation"]
    reach = tuple(dilation * (k - 1) + 1 for k in p["kernel"])
    rows = weight.reshape(groups, p["out_channels"] // groups, -1)
    out_shape = (p["batch"], p["out_channels"], _out_size(p, 0), _out_size(p, 1))

    def launch() -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(_padded(p, x), reach, axis=(2, 3))
        windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
        columns = windows.transpose(0, 1, 4, 5, 2, 3).reshape(p["batch"], groups, rows.shape[2], -1)
        return (rows @ columns).reshape(out_shape)

    return launch


def _torch(p: Params, x: Any, weight: Any) -> Launch:
    from torch.nn.functional import conv2d

    options = {key: p[key] for key in ("stride", "padding", "dilation", "groups")}
    return partial(conv2d, x, weight, None, **options)


def _preset(batch: int, channels: int, image: int, out: int) -> dict[str, Any]:
    return {"batch": batch, "in_channels": channels, "image": [image, image], "out_channels": out}


CONV2D = Operator(
    name="conv2d",
    summary="two-dimensional convolution, channels first, no bias",
    category="convolution",
    params=(
        size("batch", "images"),
        size("in_channels", "channels of the input"),
        shape("image", "height x width of the input"),
        size("out_channels", "channels of the output"),
        shape("kernel", "height x width of the kernel", [3, 3]),
        size("stride", "step between two windows", 1),
        integer("padding", "zeros around the image", 1, kind="count"),
        size("dilation", "step between two elements of the kernel", 1),
        size("groups", "independent groups of channels; as many as channels: depthwise", 1),
        dtype(*FLOATS),
    ),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    reference=_reference,
    tolerance=sum_of_products(_terms),
    presets={
        "small": _preset(1, 16, 32, 16),
        "typical": _preset(8, 64, 56, 64),
        "large": _preset(32, 128, 56, 128),
    },
    rules=(
        Rule("image", "have two sizes, height x width (got {image})", lambda p: len(p["image"]) == 2),
        Rule("kernel", "have two sizes, height x width (got {kernel})", lambda p: len(p["kernel"]) == 2),
        Rule("groups", "divide in_channels={in_channels} (got {groups})",
             lambda p: p["in_channels"] % p["groups"] == 0),
        Rule("groups", "divide out_channels={out_channels} (got {groups})",
             lambda p: p["out_channels"] % p["groups"] == 0),
        Rule("kernel", "fit into the padded image {image} (got {kernel} with dilation {dilation})",
             lambda p: _out_size(p, 0) >= 1 and _out_size(p, 1) >= 1),
    ),
    gradients=("x", "weight"),
    implementations=(Implementation("numpy", _numpy), Implementation("torch", _torch)),
    aliases=("Convolution",),
)  # fmt: skip

OPERATORS = (CONV2D,)
