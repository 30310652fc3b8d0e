"""Common parts of operators along one axis: parameters, rules, data, and how results with indices are compared."""

from __future__ import annotations

from collections.abc import Callable
from math import expm1, log1p, prod
from typing import Any, NamedTuple

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls, formula, numpy
from opmark.plugin import Implementation, Operator, Param, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, flag, integer, shape
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, is_float, sizeof

INDEX_BYTES = sizeof("int64")
EXACT = Tolerance(factor=0.0)
"""For operators that only move or find values: nothing is rounded, so results must be exact."""
ORDERED = (*FLOATS, "int64", "int32")

PRESETS = {
    "small": {"shape": [256, 256]},
    "typical": {"shape": [2048, 2048]},
    "large": {"shape": [8192, 8192]},
}
SHAPE = shape("shape", "shape of x")
AXIS = integer("axis", "axis that the operator works along; negative counts from the last", -1)
KEEPDIMS = flag("keepdims", "the axis stays, with length 1")
AXIS_EXISTS = ParamRule("axis", "name an axis of shape {shape} (got {axis})", lambda p: is_axis(p, p["axis"]))

Make = Callable[[Params, Any], Any]


def expected_distinct(draws: float, values: int) -> float:
    """Return how many different ones are to be expected among random values, each of which is equally likely."""
    return values * -expm1(draws * log1p(-1 / values)) if values > 1 else 1.0


def is_axis(p: Params, axis: int) -> bool:
    return -len(p["shape"]) <= axis < len(p["shape"])


def length(p: Params) -> int:
    return int(p["shape"][p["axis"]])


def elements(p: Params) -> int:
    return prod(p["shape"])


def rows(p: Params) -> int:
    """Return the number of results, if each one takes the whole axis."""
    return elements(p) // length(p)


def signed_spec(p: Params) -> TensorSpec:
    bound = 1.0 if is_float(p["dtype"]) else 60
    return TensorSpec(tuple(p["shape"]), p["dtype"], -bound, bound)


def near_one_spec(p: Params) -> TensorSpec:
    """Return values so close to 1 that a product along the axis stays around 1, however long it is."""
    width = min(0.5, 2 / length(p) ** 0.5)
    return TensorSpec(tuple(p["shape"]), p["dtype"], 1 - width, 1 + width)


def custom_spec(low: float, high: float, make: Make) -> Callable[[Params], TensorSpec]:
    """Return the spec of an x that make(params, generator) fills."""
    return lambda p: TensorSpec(tuple(p["shape"]), p["dtype"], low, high, make=lambda generator: make(p, generator))


def order_preserving(axis: Callable[[Params], int] = lambda p: int(p["axis"])) -> Callable[..., Any]:
    """Return a direction in which larger elements move further and equal ones together, so that their order stays."""

    def direction(p: Params, name: str, generator: Any, x: Any) -> Any:
        row = list(x.shape)
        row[axis(p)] = 1
        return generator.choice((-1.0, 1.0), size=row) * np.exp(generator.uniform(0.5, 2.0, size=row) * x)

    return direction


def values_at(p: Params, x: Any, indices: Any, *, axis: int | None = None) -> Any:
    """Return the values that indices along the axis point at; these can be compared even if equal values are
    swapped."""
    along = p["axis"] if axis is None else axis
    if indices.dtype.kind not in "iu" or (indices < 0).any() or (indices >= x.shape[along]).any():
        raise IndexError(f"indices are outside of an axis of length {x.shape[along]}")
    whole = indices if indices.ndim == x.ndim else np.expand_dims(indices, along)
    found = np.take_along_axis(x, whole, axis=along)
    return found if indices.ndim == x.ndim else np.squeeze(found, along)


def values_and_places(p: Params, outputs: Any, x: Any) -> Any:
    values, indices = outputs
    return values, values_at(p, x, indices)


def places(p: Params, outputs: Any, x: Any) -> Any:
    return values_at(p, x, outputs)


def reference_in_numpy(reference: Callable[..., Any]) -> Implementation:
    """Make a NumPy implementation of a reference that does not round: it keeps every element type, float16 too."""
    return numpy(lambda p, **tensors: lambda: reference(p, **tensors))


class Work(NamedTuple):
    """Operations and reads per element of x, and per row (one result)."""

    flops: int = 0
    row_flops: int = 0
    reads: int = 0
    row_reads: int = 1
    indices: int = 0
    """Indices read per row."""


ADDITION = Work(flops=1)


def row_cost(work: Work, outputs: tuple[Callable[[Params], str], ...]) -> Callable[[Params], Cost]:
    def cost(p: Params) -> Cost:
        written = sum(sizeof(output(p)) for output in outputs)
        flops = work.flops * elements(p) + work.row_flops * rows(p)
        return Cost(flops, elements(p) * sizeof(p["dtype"]), rows(p) * written)

    return cost


def row_backward(work: Work) -> Callable[[Params], Cost]:
    """Return the cost of a gradient as large as x, from one incoming gradient per row."""

    def cost(p: Params) -> Cost:
        n, m, size = elements(p), rows(p), sizeof(p["dtype"])
        read = (work.reads * n + work.row_reads * m) * size + work.indices * m * INDEX_BYTES
        return Cost(work.flops * n + work.row_flops * m, read, n * size)

    return cost


def same_dtype(p: Params) -> str:
    return str(p["dtype"])


def index_dtype(p: Params) -> str:
    return "int64"


def reduction(
    name: str,
    summary: str,
    *,
    torch: str | Implementation,
    reference: Callable[..., Any],
    in_numpy: Implementation | None = None,
    work: Work = ADDITION,
    backward: Work | None = None,
    spec: Callable[[Params], TensorSpec] = signed_spec,
    outputs: tuple[Callable[[Params], str], ...] = (same_dtype,),
    dtypes: tuple[str, ...] = FLOATS,
    params: tuple[Param, ...] = (),
    keepdims: bool = True,
    rules: tuple[ParamRule, ...] = (),
    tolerance: Tolerance | None = None,
    gradients: bool = True,
    **more: Any,
) -> Operator:
    """Make a reduction: one result (or one of each kind in `outputs`) for all elements along an axis.

    `torch` is the path of a function of (x, dim, keepdim), or an implementation; without `in_numpy`, the reference
    becomes the NumPy implementation. `backward` is the work of the gradient, if it is not a view of the incoming one.
    """
    computed = in_numpy or formula(reference, *outputs)
    launch = torch if isinstance(torch, Implementation) else _call_along_axis(torch, keepdims)
    return Operator(
        name=name,
        summary=summary,
        category="reduction",
        params=(SHAPE, AXIS, *((KEEPDIMS,) if keepdims else ()), *params, dtype(*dtypes)),
        inputs=lambda p: {"x": spec(p)},
        cost=row_cost(work, outputs),
        backward_cost=row_backward(backward) if backward else None,
        reference=reference,
        tolerance=tolerance or Tolerance(terms=length),
        result_dtype=outputs[0],
        further_dtypes=lambda p: tuple(output(p) for output in outputs[1:]),
        presets=PRESETS,
        rules=(AXIS_EXISTS, *rules),
        gradients=("x",) if gradients else (),
        gradient_view=gradients and backward is None,
        implementations=(computed, launch),
        **more,
    )


def _call_along_axis(path: str, keepdims: bool) -> Implementation:
    return calls(path, "x", dim="axis", keepdim="keepdims") if keepdims else calls(path, "x", dim="axis")


def axis_keywords(p: Params) -> dict[str, Any]:
    """Return the keywords of NumPy's reductions."""
    return {"axis": p["axis"], "keepdims": p.get("keepdims", False)}
