"""Operators with a mask: where, masked_fill, masked_select."""

from __future__ import annotations

from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._axis import EXACT, SHAPE, elements, signed_spec
from opmark.operators._build import calls, numpy, torch
from opmark.operators._pointwise import PRESETS
from opmark.operators.indexing import MOVED
from opmark.operators.searching import DENSITY, DENSITY_IS_A_PART, density_count, make_mask
from opmark.schema import Cost, Operator, Params, TensorSpec
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, real

TRUTH_BYTES = sizeof("bool")


def _mask(p: Params) -> TensorSpec:
    return TensorSpec(tuple(p["shape"]), "bool", 0, 2)


def _mask_cost(tensors_read: int, tensors_written: int) -> Any:
    """Return a cost function for that many tensors read and written, and a mask of the same shape."""

    def cost(p: Params) -> Cost:
        n, nbytes = elements(p), sizeof(p["dtype"])
        return Cost(0, n * (tensors_read * nbytes + TRUTH_BYTES), tensors_written * n * nbytes)

    return cost


WHERE = Operator(
    name="where",
    summary="elements of x where a condition holds, of y elsewhere",
    category="indexing",
    params=(SHAPE, dtype(*MOVED)),
    inputs=lambda p: {"condition": _mask(p), "x": signed_spec(p), "y": signed_spec(p)},
    cost=_mask_cost(2, 1),
    backward_cost=_mask_cost(1, 2),
    reference=lambda p, condition, x, y: np.where(condition, x, y),
    tolerance=EXACT,
    presets=PRESETS,
    gradients=("x", "y"),
    implementations=(
        numpy(lambda p, condition, x, y: lambda: np.where(condition, x, y), "numpy.where"),
        calls("torch.where", "condition", "x", "y"),
    ),
)

MASKED_FILL = Operator(
    name="masked_fill",
    summary="x with elements replaced by a value where the mask is true",
    category="indexing",
    params=(SHAPE, real("value", "the value", 1.0), dtype(*FLOATS)),
    inputs=lambda p: {"x": signed_spec(p), "mask": _mask(p)},
    cost=_mask_cost(1, 1),
    backward_cost=_mask_cost(1, 1),
    reference=lambda p, x, mask: np.where(mask, p["value"], x),
    presets=PRESETS,
    gradients=("x",),
    implementations=(
        numpy(lambda p, x, mask: lambda: np.where(mask, x.dtype.type(p["value"]), x), "numpy.where"),
        torch(lambda p, x, mask: lambda: x.masked_fill(mask, p["value"]), "torch.Tensor.masked_fill"),
    ),
)


def _select_cost(p: Params) -> Cost:
    n, nbytes = elements(p), sizeof(p["dtype"])
    return Cost(0, n * (nbytes + TRUTH_BYTES), density_count(p) * nbytes)


def _select_backward(p: Params) -> Cost:
    n, nbytes = elements(p), sizeof(p["dtype"])
    return Cost(0, density_count(p) * nbytes + n * TRUTH_BYTES, n * nbytes)


MASKED_SELECT = Operator(
    name="masked_select",
    summary="the elements where the mask is true, as a vector",
    category="indexing",
    params=(SHAPE, DENSITY, dtype(*MOVED)),
    inputs=lambda p: {
        "x": signed_spec(p),
        "mask": TensorSpec(tuple(p["shape"]), "bool", 0, 2, lambda generator: make_mask(p, generator)),
    },
    cost=_select_cost,
    backward_cost=_select_backward,
    reference=lambda p, x, mask: x[mask],
    tolerance=EXACT,
    presets={
        "small": {"shape": [256, 256]},
        "typical": {"shape": [1024, 1024]},
        "large": {"shape": [8192, 4096]},
    },
    rules=(DENSITY_IS_A_PART,),
    gradients=("x",),
    implementations=(
        numpy(lambda p, x, mask: lambda: x[mask]),
        calls("torch.masked_select", "x", "mask"),
    ),
    aliases=("boolean_mask",),
)

OPERATORS = (WHERE, MASKED_FILL, MASKED_SELECT)
