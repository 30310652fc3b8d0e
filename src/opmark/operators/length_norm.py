"""Operators that divide by a length: l2_normalize, weight_norm, and lrn, which takes neighbouring channels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import calls, formula, torch
from opmark.operators.channel_norm import IMAGES, SHAPE
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import choice, dtype, real, shape, size


def _plain_cost(flops: int, tensors_read: int) -> Callable[[Params], Cost]:
    def cost(p: Params) -> Cost:
        n, nbytes = prod(p["shape"]), sizeof(p["dtype"])
        return Cost(flops * n, tensors_read * n * nbytes, n * nbytes)

    return cost


# -- l2_normalize makes vectors of unit length.

MODES: dict[str, Callable[[list[int]], tuple[int, ...]]] = {
    "channel": lambda shape: (1,),
    "instance": lambda shape: tuple(range(1, len(shape))),
    "spatial": lambda shape: tuple(range(2, len(shape))),
}


def _axes(p: Params) -> tuple[int, ...]:
    return MODES[p["mode"]](p["shape"])


def _l2_normalize(p: Params, x: Any) -> Any:
    length = np.sqrt(np.square(x).sum(axis=_axes(p), keepdims=True))
    return x / np.maximum(length, p["eps"])


def _torch_l2_normalize(p: Params, x: Any) -> Launch:
    from torch.nn.functional import normalize

    axes: Any = _axes(p)  # torch takes several axes, though its annotation says one
    return partial(normalize, x, dim=axes, eps=p["eps"])


L2_NORMALIZE = Operator(
    name="l2_normalize",
    summary="x over its Euclidean length along some axes",
    category="normalization",
    params=(
        SHAPE,
        choice("mode", "axes of a vector: the channels, all but the batch, or all after the channels",
               tuple(MODES), "instance"),
        real("eps", "lower limit of the length", 1e-12, kind="amount"),
        dtype(*FLOATS),
    ),
    inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"])},
    # Square and sum 2, quotient 1. Backwards, that sum again 2, the sum of x times the gradient 2, and the result 3.
    cost=_plain_cost(flops=3, tensors_read=1),
    backward_cost=_plain_cost(flops=7, tensors_read=2),
    reference=_l2_normalize,
    presets=IMAGES,
    rules=(
        Rule("mode", "select an existing axis of {shape} (got {mode})",
             lambda p: len(p["shape"]) > (2 if p["mode"] == "spatial" else 1)),
        # A single element would become 1 or -1.
        Rule("shape", "have at least 2 elements along the axes of mode={mode} (got {shape})",
             lambda p: prod(p["shape"][axis] for axis in _axes(p)) >= 2),
    ),
    gradients=("x",),
    implementations=(formula(_l2_normalize), torch(_torch_l2_normalize, "torch.nn.functional.normalize")),
    aliases=("L2Normalization", "normalize"),
)  # fmt: skip

# -- lrn divides each channel by its neighbours.


def _lrn(p: Params, x: Any) -> Any:
    """Take a window of `size` channels around each channel; if it is even, one more lies before than after."""
    size, channels = p["size"], x.shape[1]
    squares = np.zeros((x.shape[0], channels + size - 1, *x.shape[2:]), x.dtype)
    squares[:, size // 2 : size // 2 + channels] = np.square(x)
    total = sum(squares[:, i : i + channels] for i in range(size))
    return x / (p["k"] + p["alpha"] / size * total) ** p["beta"]


LRN = Operator(
    name="lrn",
    summary="local response normalisation: each channel over a power of the mean square of its neighbours",
    category="normalization",
    params=(
        SHAPE,
        size("size", "channels of a window", 5),
        real("alpha", "weight of their mean square", 1e-4, kind="amount"),
        real("beta", "power", 0.75, kind="amount"),
        real("k", "added to the mean square", 1.0, kind="amount"),
        # torch uses average pooling over three axes, which it lacks for 16-bit types on a CPU.
        dtype("float64", "float32"),
    ),
    inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"])},
    # Square 1, a sliding sum 2, scale and add 2, power 1, quotient 1. Backwards, the first six again, three products
    # with the gradient, a sliding sum 2, and the result 3.
    cost=_plain_cost(flops=7, tensors_read=1),
    backward_cost=_plain_cost(flops=14, tensors_read=2),
    reference=_lrn,
    presets=IMAGES,
    rules=(
        Rule("shape", "have at least 3 axes, of which the second is the channels (got {shape})",
             lambda p: len(p["shape"]) >= 3),
        Rule("k", "be above 0", lambda p: p["k"] > 0),
    ),
    gradients=("x",),
    implementations=(
        formula(_lrn),
        calls("torch.nn.functional.local_response_norm", "x", size="size", alpha="alpha", beta="beta", k="k"),
    ),
    aliases=("LRN", "local_response_norm"),
)  # fmt: skip

# -- weight_norm keeps length and direction of each row of weights separately.


def _weight_inputs(p: Params) -> dict[str, TensorSpec]:
    rows = (p["shape"][0], *[1] * (len(p["shape"]) - 1))
    return {"v": TensorSpec(tuple(p["shape"]), p["dtype"]), "g": TensorSpec(rows, p["dtype"], 0.5, 1.5)}


def _weight_cost(p: Params) -> Cost:
    v, g = _weight_inputs(p).values()
    return Cost(3 * v.elements, v.nbytes + g.nbytes, v.nbytes)


def _weight_backward(p: Params) -> Cost:
    """Count as for l2_normalize; the gradient of g is one of its intermediate results."""
    v, g = _weight_inputs(p).values()
    return Cost(7 * v.elements, 2 * v.nbytes + g.nbytes, v.nbytes + g.nbytes)


def _weight_norm(p: Params, v: Any, g: Any) -> Any:
    return v * (g / np.sqrt(np.square(v).sum(axis=tuple(range(1, v.ndim)), keepdims=True)))


WEIGHT_NORM = Operator(
    name="weight_norm",
    summary="rows of weights from their directions v and their lengths g",
    category="normalization",
    params=(shape("shape", "shape of the weights; the first axis counts rows"), dtype(*FLOATS)),
    inputs=_weight_inputs,
    cost=_weight_cost,
    backward_cost=_weight_backward,
    reference=_weight_norm,
    presets={
        "small": {"shape": [64, 16, 3, 3]},
        "typical": {"shape": [1024, 1024]},
        "large": {"shape": [8192, 8192]},
    },
    rules=(Rule("shape", "have at least 2 axes and 2 elements per row (got {shape})",
                lambda p: prod(p["shape"][1:]) >= 2),),
    gradients=("v", "g"),
    # A private function, but torch's own parametrization calls it.
    implementations=(formula(_weight_norm), calls("torch._weight_norm", "v", "g")),
)  # fmt: skip

OPERATORS = (L2_NORMALIZE, LRN, WEIGHT_NORM)
"""Found by the registry."""
