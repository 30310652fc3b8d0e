"""Sampling an image at points between its pixels (grid_sample, affine_grid, warp_grid, spatial_transformer), and
correlation of two images."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, torch
from opmark.catalogue.operators._window import AXES, FULL_PRECISION, Positions, has_axes, torch_function
from opmark.plugin import Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import choice, dtype, flag, integer, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

# Flops per point: position 4, its fraction 2, weights 6. Flops per value: four products and their sum.
POINT_FLOPS = 12
VALUE_FLOPS = 8
# Flops of the gradient of the image, and of both coordinates.
BACK_FLOPS = 3 * VALUE_FLOPS
# Two coordinates, each a x + b y + c; backwards, products for a and b, and three sums.
GRID_FLOPS = 8
GRID_BACK_FLOPS = 10


def _half(n: int, align_corners: bool) -> float:
    """Return the pixels per unit of the grid, which goes from -1 to 1 over the image."""
    return (n - 1) / 2 if align_corners else n / 2


def _pixel(grid: Any, n: int, align_corners: bool) -> Any:
    return grid * _half(n, align_corners) + (n - 1) / 2


def _sample_reference(p: Params, x: Any, grid: Any) -> Any:
    """Interpolate bilinearly, adding one of the four neighbours at a time."""
    height, width = p["image"]
    across, down = _pixel(grid[..., 0], width, p["align_corners"]), _pixel(grid[..., 1], height, p["align_corners"])
    if p["padding_mode"] == "border":
        across, down = np.clip(across, 0, width - 1), np.clip(down, 0, height - 1)
    left, top = np.floor(across).astype(int), np.floor(down).astype(int)
    images = np.arange(p["batch"])[:, None, None]
    out: Any = 0.0
    for dy, dx in np.ndindex(2, 2):
        column, row = left + dx, top + dy
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        weight = (1 - np.abs(across - column)) * (1 - np.abs(down - row)) * inside
        values = x[images, :, np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
        out = out + values * weight[..., None]
    return np.ascontiguousarray(np.moveaxis(out, -1, 1))


def _image(p: Params) -> TensorSpec:
    return TensorSpec((p["batch"], p["channels"], *p["image"]), p["dtype"])


def _between_pixels(p: Params, generator: Any) -> Any:
    """Return points in the image and up to a pixel beside it, but not near the lines where the derivative changes."""
    halves = [_half(n, p["align_corners"]) for n in p["image"]]
    points = (p["batch"], *p["out"])
    at = [generator.integers(-1, n, points) + generator.uniform(0.1, 0.9, points) for n in p["image"]]
    down, across = ((a - (n - 1) / 2) / half for a, n, half in zip(at, p["image"], halves, strict=True))
    return np.stack([across, down], axis=-1)


def _grid_inputs(p: Params) -> dict[str, TensorSpec]:
    reach = max(((n + 1) / 2) / _half(n, p["align_corners"]) for n in p["image"])
    grid = TensorSpec((p["batch"], *p["out"], 2), p["dtype"], -reach, reach, partial(_between_pixels, p))
    return {"x": _image(p), "grid": grid}


def _points(p: Params) -> int:
    return int(p["batch"] * prod(p["out"]))


def _bytes_read(p: Params) -> int:
    """Return the bytes of the image that are read: four neighbours of each point, at most the whole image."""
    return min(_image(p).nbytes, int(4 * _points(p) * p["channels"] * sizeof(p["dtype"])))


def _sample_cost(p: Params) -> Cost:
    points, nbytes = _points(p), sizeof(p["dtype"])
    flops = points * (POINT_FLOPS + VALUE_FLOPS * p["channels"])
    return Cost(flops, _bytes_read(p) + 2 * points * nbytes, points * p["channels"] * nbytes)


def _sample_backward(p: Params) -> Cost:
    points, nbytes, forward = _points(p), sizeof(p["dtype"]), _sample_cost(p)
    flops = points * (POINT_FLOPS + BACK_FLOPS * p["channels"])
    return Cost(flops, forward.bytes_read + forward.bytes_written, _image(p).nbytes + 2 * points * nbytes)


def _avoid_lines(p: Params, name: str, generator: Any, array: Any) -> Any:
    way = generator.choice((-1.0, 1.0), size=array.shape)
    if name != "grid":
        return way
    sizes = (p["image"][1], p["image"][0])
    at = np.stack([_pixel(array[..., i], n, p["align_corners"]) for i, n in enumerate(sizes)], axis=-1)
    return np.where(np.abs(at - np.round(at)) < 0.05, 0.0, way)


def _torch_grid_sample(p: Params, x: Any, grid: Any) -> Launch:
    options = {"padding_mode": p["padding_mode"], "align_corners": p["align_corners"]}
    return partial(torch_function("grid_sample"), x, grid, mode="bilinear", **options)


def _preset(batch: int, channels: int, image: int) -> dict[str, Any]:
    return {"batch": batch, "channels": channels, "image": [image, image], "out": [image, image]}


OUT = shape("out", f"{AXES[2]} of the output")
CORNERS = flag("align_corners", "-1 and 1 are the centres of the corner pixels; otherwise their outer edges")
PADDING_MODE = choice("padding_mode", "values outside of the image", ("zeros", "border"), "zeros")
IMAGES = (
    size("batch", "images"),
    size("channels", "channels"),
    shape("image", f"{AXES[2]} of the input"),
    OUT,
    CORNERS,
    PADDING_MODE,
)
# A grid over a single pixel has no width.
IMAGE_RULES = (
    has_axes("image", 2),
    ParamRule("image", "have at least 2 pixels along each axis (got {image})", lambda p: min(p["image"]) >= 2),
)
OUT_RULES = (
    has_axes("out", 2),
    ParamRule("out", "have at least 2 pixels along each axis (got {out})", lambda p: min(p["out"]) >= 2),
)
SAMPLE_PRESETS = {"small": _preset(1, 8, 32), "typical": _preset(4, 32, 64), "large": _preset(32, 64, 128)}

GRID_SAMPLE = Operator(
    name="grid_sample",
    summary="values of an image at given points, interpolated bilinearly",
    category="sampling",
    params=(*IMAGES, dtype(*FULL_PRECISION)),
    inputs=_grid_inputs,
    cost=_sample_cost,
    backward_cost=_sample_backward,
    reference=_sample_reference,
    tolerance=Positions(),
    presets=SAMPLE_PRESETS,
    rules=(*IMAGE_RULES, has_axes("out", 2)),
    gradients=("x", "grid"),
    direction=_avoid_lines,
    implementations=(formula(_sample_reference), torch(_torch_grid_sample, "torch.nn.functional.grid_sample")),
    aliases=("BilinearSampler", "grid_sampler", "grid_sampler_2d"),
)


def _affine_grid(p: Params, theta: Any) -> Any:
    """Return x and y of each point of the output, mapped by the 2 x 3 matrix of its image."""
    axes = [(np.arange(n) - (n - 1) / 2) / _half(n, p["align_corners"]) for n in p["out"]]
    down, across = np.meshgrid(*axes, indexing="ij")
    points = np.stack([across, down, np.ones_like(across)], axis=-1).astype(theta.dtype)
    return np.einsum("hwk,nck->nhwc", points, theta)


def _torch_affine_grid(p: Params, theta: Any) -> Launch:
    sizes = [p["batch"], 1, *p["out"]]
    return partial(torch_function("affine_grid"), theta, sizes, align_corners=p["align_corners"])


def _theta_bytes(p: Params) -> int:
    return int(6 * p["batch"] * sizeof(p["dtype"]))


AFFINE_GRID = Operator(
    name="affine_grid",
    summary="the points of an image under an affine map",
    category="sampling",
    params=(size("batch", "maps"), OUT, CORNERS, dtype(*FLOATS)),
    inputs=lambda p: {"theta": TensorSpec((p["batch"], 2, 3), p["dtype"])},
    cost=lambda p: Cost(GRID_FLOPS * _points(p), _theta_bytes(p), 2 * _points(p) * sizeof(p["dtype"])),
    backward_cost=lambda p: Cost(GRID_BACK_FLOPS * _points(p), 2 * _points(p) * sizeof(p["dtype"]), _theta_bytes(p)),
    reference=_affine_grid,
    tolerance=Tolerance(terms=lambda p: 3),
    presets={
        "small": {"batch": 2, "out": [32, 32]},
        "typical": {"batch": 16, "out": [128, 128]},
        "large": {"batch": 128, "out": [512, 512]},
    },
    rules=OUT_RULES,
    gradients=("theta",),
    implementations=(formula(_affine_grid), torch(_torch_affine_grid, "torch.nn.functional.affine_grid")),
    aliases=("GridGenerator", "affine_grid_generator"),
)


def _warp_parts(p: Params) -> tuple[Any, Any]:
    """Return the factor of a flow, and the grid that is added to it."""
    height, width = p["image"]
    scale = np.array([2 / (width - 1), 2 / (height - 1)]).reshape(1, 2, 1, 1)
    down, across = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    return scale, np.stack([across, down])[None] * scale - 1


def _warp_grid(p: Params, flow: Any) -> Any:
    scale, base = _warp_parts(p)
    return flow * scale + base


def _torch_warp_grid(p: Params, flow: Any) -> Launch:
    import torch as framework

    scale, base = (framework.as_tensor(part).to(flow) for part in _warp_parts(p))
    return partial(framework.addcmul, base, flow, scale)


def _flow(p: Params) -> TensorSpec:
    return TensorSpec((p["batch"], 2, *p["image"]), p["dtype"], -2.0, 2.0)


WARP_GRID = Operator(
    name="warp_grid",
    summary="the points of an image moved by a flow in pixels, as x and y between -1 and 1",
    category="sampling",
    params=(size("batch", "flows"), shape("image", f"{AXES[2]} of the flow"), dtype(*FLOATS)),
    inputs=lambda p: {"flow": _flow(p)},
    cost=lambda p: Cost(2 * _flow(p).elements, _flow(p).nbytes, _flow(p).nbytes),
    backward_cost=lambda p: Cost(_flow(p).elements, _flow(p).nbytes, _flow(p).nbytes),
    reference=_warp_grid,
    presets={
        "small": {"batch": 2, "image": [64, 64]},
        "typical": {"batch": 8, "image": [256, 256]},
        "large": {"batch": 64, "image": [512, 512]},
    },
    rules=IMAGE_RULES,
    gradients=("flow",),
    implementations=(formula(_warp_grid), torch(_torch_warp_grid)),
    aliases=("grid_generator_warp",),
)


def _whole_steps(p: Params, generator: Any) -> Any:
    """Return maps that rotate, flip and shear by whole pixels and shift by a fraction of one, so that no point lies on
    a line between pixels, where the derivative changes."""
    turns = np.array([[[1, 0], [0, 1]], [[-1, 0], [0, 1]], [[0, 1], [-1, 0]], [[1, 1], [0, 1]]])
    steps = turns[generator.integers(0, len(turns), p["batch"])]
    halves = np.array([_half(n, p["align_corners"]) for n in p["image"][::-1]])
    outs = np.array([_half(n, p["align_corners"]) for n in p["out"][::-1]])
    centre = (np.array(p["image"][::-1]) - 1) / 2 - steps @ ((np.array(p["out"][::-1]) - 1) / 2)
    shift = generator.uniform(0.25, 0.75, centre.shape) - centre % 1
    return np.concatenate([steps * outs / halves[:, None], (shift / halves)[..., None]], axis=-1)


def _transformer_inputs(p: Params) -> dict[str, TensorSpec]:
    smallest = _half(min(p["image"]), p["align_corners"])
    reach = (1 + _half(max(p["out"]), p["align_corners"])) / smallest
    return {
        "x": _image(p),
        "theta": TensorSpec((p["batch"], 2, 3), p["dtype"], -reach, reach, partial(_whole_steps, p)),
    }


def _transformer_reference(p: Params, x: Any, theta: Any) -> Any:
    return _sample_reference(p, x, _affine_grid(p, theta))


def _transformer_cost(p: Params) -> Cost:
    flops = _points(p) * (GRID_FLOPS + POINT_FLOPS + VALUE_FLOPS * p["channels"])
    return Cost(flops, _bytes_read(p) + _theta_bytes(p), _points(p) * p["channels"] * sizeof(p["dtype"]))


def _transformer_backward(p: Params) -> Cost:
    """The grid is not counted again: it was stored, or is recomputed."""
    forward = _transformer_cost(p)
    flops = _points(p) * (GRID_BACK_FLOPS + POINT_FLOPS + BACK_FLOPS * p["channels"])
    return Cost(flops, forward.bytes_read + forward.bytes_written, _image(p).nbytes + _theta_bytes(p))


def _torch_transformer(p: Params, x: Any, theta: Any) -> Launch:
    affine_grid, grid_sample = torch_function("affine_grid"), torch_function("grid_sample")
    sizes, corners, mode = [p["batch"], p["channels"], *p["out"]], p["align_corners"], p["padding_mode"]

    def launch() -> Any:
        grid = affine_grid(theta, sizes, align_corners=corners)
        return grid_sample(x, grid, mode="bilinear", padding_mode=mode, align_corners=corners)

    return launch


SPATIAL_TRANSFORMER = Operator(
    name="spatial_transformer",
    summary="an image under an affine map, interpolated bilinearly",
    category="sampling",
    params=(*IMAGES, dtype(*FULL_PRECISION)),
    inputs=_transformer_inputs,
    cost=_transformer_cost,
    backward_cost=_transformer_backward,
    reference=_transformer_reference,
    tolerance=Positions(),
    presets=SAMPLE_PRESETS,
    rules=(*IMAGE_RULES, *OUT_RULES),
    gradients=("x", "theta"),
    implementations=(formula(_transformer_reference), torch(_torch_transformer)),
    aliases=("SpatialTransformer",),
)


# Correlation of two images, as in FlowNet: how similar each patch of one is to nearby patches of the other.


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


def _correlation_preset(batch: int, channels: int, image: int, displacement: int) -> dict[str, Any]:
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
        "small": _correlation_preset(1, 8, 24, 2),
        "typical": _correlation_preset(2, 64, 48, 4),
        "large": _correlation_preset(8, 256, 64, 10),
    },
    rules=(
        has_axes("image", 2),
        ParamRule("kernel", "be odd (got {kernel})", lambda p: p["kernel"] % 2 == 1),
        ParamRule("max_displacement", "leave a patch of {kernel} in the padded image {image} (got {max_displacement})",
             lambda p: min(_out_sizes(p)) >= 1),
    ),
    gradients=("x", "y"),
    implementations=(formula(_reference), torch(_torch)),
    aliases=("Correlation",),
)  # fmt: skip


OPERATORS = (
    GRID_SAMPLE,
    AFFINE_GRID,
    WARP_GRID,
    SPATIAL_TRANSFORMER,
    CORRELATION,
)
