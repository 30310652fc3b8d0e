"""Correlation of two images, as in FlowNet: how similar each patch of one is to nearby patches of the other."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula, torch
from opmark.operators._windows import AXES, FULL_PRECISION, has_axes, torch_function
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec, Tolerance
from opmark.schema.dtype import sizeof
from opmark.schema.param import dtype, integer, shape, size


def _shifts(p: Params) -> list[int]:
    """Return the displacements along an axis."""
    most, step = p["max_displacement"], p["displacement_stride"]
    return [step * i for i in range(-(most // step), most // step + 1)]


def _out_sizes(p: Params) -> tuple[int, ...]:
    """Return the number of patches along each axis that stay inside the padded image under every displacement."""
    less = 2 * p["padding"] - 2 * p["max_displacement"] - p["kernel"]
    return tuple(int((n + less) // p["stride"] + 1) for n in p["image"])


def _inputs(p: Params) -> dict[str, TensorSpec]:
    spec = TensorSpec((p["batch"], p["channels"], *p["image"]), p["dtype"])
    return {"x": spec, "y": spec}


def _terms(p: Params) -> int:
    return int(p["channels"] * p["kernel"] ** 2)


def _outputs(p: Params) -> int:
    return int(p["batch"] * len(_shifts(p)) ** 2 * prod(_out_sizes(p)))


def _cost(p: Params) -> Cost:
    read = 2 * _inputs(p)["x"].nbytes
    return Cost(2 * _terms(p) * _outputs(p), read, _outputs(p) * sizeof(p["dtype"]))


def _backward_cost(p: Params) -> Cost:
    """Each of the two gradients takes as many flops as the forward pass."""
    forward = _cost(p)
    flops = 4 * _terms(p) * _outputs(p)
    return Cost(flops, forward.bytes_read + forward.bytes_written, forward.bytes_read)


def _reference(p: Params, x: Any, y: Any) -> Any:
    """Compute one displacement and one pixel of the patch at a time."""
    pad, first, step, (height, width) = p["padding"], p["max_displacement"], p["stride"], _out_sizes(p)
    x, y = (np.pad(image, ((0, 0), (0, 0), (pad, pad), (pad, pad))) for image in (x, y))

    def pixels(image: Any, top: int, left: int) -> Any:
        return image[..., top : top + step * (height - 1) + 1 : step, left : left + step * (width - 1) + 1 : step]

    shifts, reach = _shifts(p), range(first, first + p["kernel"])
    out = np.zeros((p["batch"], len(shifts) ** 2, height, width), x.dtype)
    for i, (down, across) in enumerate((down, across) for down in shifts for across in shifts):
        for top, left in ((top, left) for top in reach for left in reach):
            out[:, i] += (pixels(x, top, left) * pixels(y, top + down, left + across)).sum(axis=1)
    return out / _terms(p)


def _torch(p: Params, x: Any, y: Any) -> Launch:
    """Compute a product of images and a mean for each displacement."""
    import torch as framework

    pad, mean = torch_function("pad"), torch_function("avg_pool2d")
    first, around, kernel, step = p["max_displacement"], (p["padding"],) * 4, p["kernel"], p["stride"]
    height, width = (step * (n - 1) + kernel for n in _out_sizes(p))
    shifts = _shifts(p)

    def crop(image: Any, down: int, across: int) -> Any:
        return image[:, :, first + down : first + down + height, first + across : first + across + width]

    def launch() -> Any:
        base, other = crop(pad(x, around), 0, 0), pad(y, around)
        found = [(base * crop(other, down, across)).mean(1) for down in shifts for across in shifts]
        stacked = framework.stack(found, dim=1)
        return mean(stacked, kernel, step) if kernel > 1 or step > 1 else stacked

    return launch


def _preset(batch: int, channels: int, image: int, displacement: int) -> dict[str, Any]:
    sizes = {"image": [image, image], "max_displacement": displacement}
    return {"batch": batch, "channels": channels, **sizes, "padding": displacement}


CORRELATION = Operator(
    name="correlation",
    summary="mean product of each patch of an image with displaced patches of another",
    category="convolution",
    params=(
        size("batch", "pairs of images"),
        size("channels", "channels"),
        shape("image", f"{AXES[2]} of both images"),
        size("kernel", "height and width of a patch", 1),
        integer("max_displacement", "pixels that a patch is displaced by at most, in each direction", kind="count"),
        size("stride", "step between two patches", 1),
        size("displacement_stride", "step between two displacements", 1),
        integer("padding", "zeros around both images", 0, kind="count"),
        # Not in 16 bits: torch adds up the gradients of all displacements in their own type.
        dtype(*FULL_PRECISION),
    ),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    reference=_reference,
    # The result is a mean of products of inputs, whose mean square is 1/3.
    tolerance=Tolerance(_terms, magnitude=lambda p: 1 / (3 * _terms(p) ** 0.5)),
    presets={
        "small": _preset(1, 8, 24, 2),
        "typical": _preset(2, 64, 48, 4),
        "large": _preset(8, 256, 64, 10),
    },
    rules=(
        has_axes("image", 2),
        Rule("kernel", "be odd (got {kernel})", lambda p: p["kernel"] % 2 == 1),
        Rule("max_displacement", "leave a patch of {kernel} in the padded image {image} (got {max_displacement})",
             lambda p: min(_out_sizes(p)) >= 1),
    ),
    gradients=("x", "y"),
    implementations=(formula(_reference), torch(_torch)),
    aliases=("Correlation",),
)  # fmt: skip

OPERATORS = (CORRELATION,)
