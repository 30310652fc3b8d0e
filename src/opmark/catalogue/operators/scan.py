"""Scans along an axis: cumulative sums, products and extrema; and differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import (
    AXIS,
    AXIS_EXISTS,
    INDEX_BYTES,
    ORDERED,
    PRESETS,
    SHAPE,
    elements,
    length,
    near_one_spec,
    order_preserving,
    reference_in_numpy,
    rows,
    signed_spec,
    values_at,
)
from opmark.catalogue.operators._builders import calls, formula, numpy
from opmark.plugin import Implementation, Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof


def _scan(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    *,
    flops: int,
    backward_flops: int,
    backward_reads: int,
    index: bool = False,
    numpy: Implementation | None = None,
    spec: Callable[[Params], TensorSpec] = signed_spec,
    dtypes: tuple[str, ...] = FLOATS,
    tolerance: Tolerance | None = None,
    **more: Any,
) -> Operator:
    """Make a scan: one result per element; with `index`, also the index of each. `backward_reads` counts the tensors as
    large as x that the backward pass reads, including the incoming gradient."""

    def cost(p: Params) -> Cost:
        n, nbytes = elements(p), sizeof(p["dtype"])
        return Cost(flops * n, n * nbytes, n * (nbytes + index * INDEX_BYTES))

    def backward(p: Params) -> Cost:
        n, nbytes = elements(p), sizeof(p["dtype"])
        return Cost(backward_flops * n, n * (backward_reads * nbytes + index * INDEX_BYTES), n * nbytes)

    return Operator(
        name=name,
        summary=summary,
        category="scan",
        params=(SHAPE, AXIS, dtype(*dtypes)),
        inputs=lambda p: {"x": spec(p)},
        cost=cost,
        backward_cost=backward,
        reference=reference,
        tolerance=tolerance or Tolerance(terms=length),
        presets=PRESETS,
        rules=(AXIS_EXISTS,),
        gradients=("x",),
        further_dtypes=lambda _: ("int64",) if index else (),
        implementations=(numpy or formula(reference), calls(f"torch.{name}", "x", dim="axis")),
        **more,
    )


CUMSUM = _scan(
    "cumsum",
    "sum of an element and all before it along an axis",
    lambda p, x: np.cumsum(x, axis=p["axis"]),
    flops=1,
    backward_flops=1,
    backward_reads=1,
    # float16 gradients on a GPU (an H200) were 1.02 times as far off as one rounding explains; probably it adds them up
    # in the stored type.
    tolerance=Tolerance(terms=length, magnitude=lambda p: (length(p) / 3) ** 0.5, gradient_factor=2.0),
    aliases=("cumulative_sum",),
)
CUMPROD = _scan(
    "cumprod",
    "product of an element and all before it along an axis",
    lambda p, x: np.cumprod(x, axis=p["axis"]),
    # The incoming gradient times the result, summed from the end, divided by x.
    flops=1,
    backward_flops=3,
    backward_reads=3,
    spec=near_one_spec,
    dtypes=("float64", "float32"),  # as for prod: 16 bits are too few for a long product
    aliases=("cumulative_prod",),
)
LOGCUMSUMEXP = _scan(
    "logcumsumexp",
    "log of the sum of exp of an element and all before it along an axis",
    lambda p, x: np.logaddexp.accumulate(x, axis=p["axis"]),
    # Exponential, sum, logarithm.
    flops=3,
    backward_flops=4,
    backward_reads=3,
    # The gradient is exp(x) times a sum over exp(-y), and an error of y = 6 in its last place is relative there.
    tolerance=Tolerance(terms=length, gradient_factor=4.0),
)


def _extremum(accumulate: str) -> tuple[Callable[..., Any], Implementation]:
    """Return (reference, NumPy implementation), which return values and the last index of each."""

    def values(x: Any, axis: int) -> Any:
        return getattr(np, accumulate).accumulate(x, axis=axis)

    def build(p: Params, x: Any) -> Launch:
        axis = p["axis"]
        at = _places(x, axis)

        def launch() -> Any:
            found = values(x, axis)
            return found, np.maximum.accumulate(np.where(x == found, at, 0), axis=axis)

        return launch

    return (lambda p, x: (values(x, p["axis"]),) * 2), numpy(build)


def _places(x: Any, axis: int) -> Any:
    """Return 0, 1, 2, ... along the axis, in a shape that broadcasts."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return np.arange(x.shape[axis]).reshape(shape)


def _observe_indices(p: Params, outputs: Any, x: Any) -> Any:
    """Compare indices by the values that they point at, which must not come later."""
    values, indices = outputs
    if (indices > _places(x, p["axis"])).any():
        raise IndexError("an index points to a later element")
    return values, values_at(p, x, indices)


def _cumulative_extremum(name: str, what: str, accumulate: str) -> Operator:
    reference, implementation = _extremum(accumulate)
    return _scan(
        name,
        f"the {what} of an element and all before it along an axis, and where it is",
        reference,
        flops=0,
        # Gradients of equal results are added up at their source.
        backward_flops=1,
        backward_reads=1,
        index=True,
        numpy=implementation,
        # Not in 16 bits: on a GPU (an H200) two calls on the same data gave gradients that differ by more than any
        # useful tolerance. Probably gradients of equal results are added up in varying order.
        dtypes=tuple(name for name in ORDERED if sizeof(name) > 2),
        tolerance=Tolerance(terms=length),
        observe=_observe_indices,
        direction=order_preserving(),
    )


CUMMAX = _cumulative_extremum("cummax", "largest", "maximum")
CUMMIN = _cumulative_extremum("cummin", "smallest", "minimum")


def _pairs(p: Params) -> int:
    return elements(p) - rows(p)


def _diff_backward(p: Params) -> Cost:
    """Every element but the first and the last is in two differences."""
    nbytes = sizeof(p["dtype"])
    return Cost(_pairs(p) - rows(p), _pairs(p) * nbytes, elements(p) * nbytes)


DIFF = Operator(
    name="diff",
    summary="differences of neighbours along an axis",
    category="scan",
    params=(SHAPE, AXIS, dtype(*ORDERED)),
    inputs=lambda p: {"x": signed_spec(p)},
    cost=lambda p: Cost(_pairs(p), elements(p) * sizeof(p["dtype"]), _pairs(p) * sizeof(p["dtype"])),
    backward_cost=_diff_backward,
    reference=lambda p, x: np.diff(x, axis=p["axis"]),
    presets=PRESETS,
    rules=(
        AXIS_EXISTS,
        ParamRule("shape", "have at least 2 elements along axis {axis} (got {shape})", lambda p: length(p) >= 2),
    ),
    gradients=("x",),
    implementations=(
        reference_in_numpy(lambda p, x: np.diff(x, axis=p["axis"])),
        calls("torch.diff", "x", dim="axis"),
    ),
)

OPERATORS = (CUMSUM, CUMPROD, CUMMAX, CUMMIN, LOGCUMSUMEXP, DIFF)
