"""cast: the same values in another element type."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.operators import _build
from opmark.operators import _numpy as np
from opmark.operators._pointwise import PRESETS, SHAPE
from opmark.schema import Cost, Launch, Operator, Params, TensorSpec
from opmark.schema.dtype import FLOATS, INTS, is_float, sizeof
from opmark.schema.param import dtype


def _inputs(p: Params) -> dict[str, TensorSpec]:
    """Return values that both types can hold, apart from their fraction."""
    low, high = (-1.0, 1.0) if is_float(p["dtype"]) and is_float(p["to"]) else (0, 60)
    return {"x": TensorSpec(tuple(p["shape"]), p["dtype"], low, high)}


def _cost(p: Params) -> Cost:
    n = prod(p["shape"])
    return Cost(0, n * sizeof(p["dtype"]), n * sizeof(p["to"]))


def _backward_cost(p: Params) -> Cost:
    n = prod(p["shape"])
    return Cost(0, n * sizeof(p["to"]), n * sizeof(p["dtype"]))


def _numpy(p: Params, x: Any) -> Launch:
    to = np.dtype(p["to"])
    return lambda: x.astype(to)


def _torch(p: Params, x: Any) -> Launch:
    import torch

    to = getattr(torch, p["to"])
    return lambda: x.to(to, copy=True)


CAST = Operator(
    name="cast",
    summary="the same values in another element type; always a copy",
    category="element-wise",
    params=(
        SHAPE,
        dtype(*FLOATS, *INTS, doc="element type to convert from"),
        dtype(*FLOATS, *INTS, name="to", default="bfloat16", doc="element type to convert to"),
    ),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    # An integer drops the fraction; the tolerance covers the rounding of a shorter float.
    reference=lambda p, x: x if is_float(p["to"]) else np.trunc(x),
    result_dtype=lambda p: str(p["to"]),
    presets=PRESETS,
    gradients=("x",),
    implementations=(_build.numpy(_numpy), _build.torch(_torch, path="torch.Tensor.to")),
    aliases=("Cast", "amp_cast", "amp_multicast", "astype", "to"),
)

OPERATORS = (CAST,)
