"""The inverse of a max pool: each value goes to the index where it was found, zeros elsewhere."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._axis import INDEX_BYTES
from opmark.operators._build import formula, torch
from opmark.operators._pool import image_params, planes, presets
from opmark.operators._windows import AXES, has_axes, torch_function
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, shape


def _pooled_sizes(p: Params) -> tuple[int, ...]:
    return tuple(n // k for n, k in zip(p["image"], p["kernel"], strict=True))


def _pool_indices(p: Params, generator: Any) -> Any:
    """Return indices as a max pool does: a random place in each window, as an index into the whole image."""
    sizes = (p["batch"], p["channels"], *_pooled_sizes(p))
    grid = np.meshgrid(*(np.arange(n) * k for n, k in zip(_pooled_sizes(p), p["kernel"], strict=True)), indexing="ij")
    at = [start + generator.integers(0, k, sizes) for start, k in zip(grid, p["kernel"], strict=True)]
    return np.ravel_multi_index(tuple(at), tuple(p["image"]))


def _inputs(p: Params) -> dict[str, TensorSpec]:
    sizes = (p["batch"], p["channels"], *_pooled_sizes(p))
    return {
        "x": TensorSpec(sizes, p["dtype"]),
        "indices": TensorSpec(sizes, "int64", 0, prod(p["image"]), make=partial(_pool_indices, p)),
    }


def _sizes(p: Params) -> tuple[int, int, int]:
    return planes(p) * prod(_pooled_sizes(p)), planes(p) * prod(p["image"]), sizeof(p["dtype"])


def _cost(p: Params) -> Cost:
    values, image, nbytes = _sizes(p)
    return Cost(0, values * (nbytes + INDEX_BYTES), image * nbytes)


def _backward_cost(p: Params) -> Cost:
    """Only the elements of the incoming gradient that the indices point at are read."""
    values, _, nbytes = _sizes(p)
    return Cost(0, values * (nbytes + INDEX_BYTES), values * nbytes)


def _reference(p: Params, x: Any, indices: Any) -> Any:
    flat = np.zeros((p["batch"], p["channels"], prod(p["image"])), x.dtype)
    rows = (p["batch"], p["channels"], -1)
    np.put_along_axis(flat, indices.reshape(rows), x.reshape(rows), axis=-1)
    return flat.reshape(p["batch"], p["channels"], *p["image"])


def _operator(dims: int, *aliases: str) -> Operator:
    name = f"max_unpool{dims}d"

    def build(p: Params, x: Any, indices: Any) -> Launch:
        kernel, image = tuple(p["kernel"]), tuple(p["image"])
        return partial(torch_function(name), x, indices, kernel, output_size=image)

    return Operator(
        name=name,
        summary=f"the inverse of a max pool: values at their indices in an image of {AXES[dims]}, else zeros",
        category="pooling",
        params=(*image_params(dims), shape("kernel", f"{AXES[dims]} of a window", [2] * dims), dtype(*FLOATS)),
        inputs=_inputs,
        cost=_cost,
        backward_cost=_backward_cost,
        reference=_reference,
        presets=presets(dims),
        rules=(
            has_axes("image", dims),
            has_axes("kernel", dims),
            Rule("kernel", "fit into the image {image} (got {kernel})", lambda p: min(_pooled_sizes(p)) >= 1),
        ),
        gradients=("x",),
        implementations=(formula(_reference), torch(build, f"torch.nn.functional.{name}")),
        aliases=aliases,
    )


OPERATORS = (
    _operator(1, "MaxUnpool1d"),
    _operator(2, "MaxUnpool2d"),
    _operator(3, "MaxUnpool3d"),
)
