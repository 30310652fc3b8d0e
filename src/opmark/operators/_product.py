"""Common parts of products of tensors, whose inputs are uniform and have gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.schema import Cost, Operator, Params, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype

Shapes = Callable[[Params], dict[str, tuple[int, ...]]]
Count = Callable[[Params], int]


def product(
    name: str,
    summary: str,
    *,
    shapes: Shapes,
    out: Count,
    flops: Count,
    backward_flops: Count,
    dtypes: tuple[str, ...] = FLOATS,
    params: tuple[Any, ...],
    gradients: tuple[str, ...],
    **more: Any,
) -> Operator:
    """Make a product; `out` counts the elements of the result. `gradients` leaves out an input whose gradient is the
    incoming one, as there is nothing to compute."""

    def inputs(p: Params) -> dict[str, TensorSpec]:
        return {name: TensorSpec(tuple(dims), p["dtype"]) for name, dims in shapes(p).items()}

    def cost(p: Params) -> Cost:
        return Cost(flops(p), nbytes(inputs(p).values()), out(p) * sizeof(p["dtype"]))

    def backward(p: Params) -> Cost:
        """The inputs and the gradient of the result are read, a gradient per input is written."""
        read = nbytes(inputs(p)[name] for name in gradients)
        return Cost(backward_flops(p), read + out(p) * sizeof(p["dtype"]), read)

    return Operator(
        name=name,
        summary=summary,
        category="gemm",
        params=(*params, dtype(*dtypes)),
        inputs=inputs,
        cost=cost,
        backward_cost=backward,
        gradients=gradients,
        **more,
    )
