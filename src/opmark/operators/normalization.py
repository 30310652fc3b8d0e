"""Operators that normalise along the last axis: layer_norm, rms_norm; and moments, which they use."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.operators._build import formula, torch
from opmark.operators._formulas import layer_norm, rms
from opmark.schema import Cost, Implementation, Launch, Operator, Params, Rule, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, integer, real, shape

PRESETS = {
    "small": {"shape": [64, 256]},
    "typical": {"shape": [2048, 1024]},
    "large": {"shape": [8192, 4096]},
}


def _row_cost(p: Params, flops: int, tensors_read: int, vectors_read: int = 0, vectors_written: int = 0) -> Cost:
    """Return the cost of work on a tensor and on vectors as long as its last axis."""
    n, hidden, nbytes = prod(p["shape"]), p["shape"][-1], sizeof(p["dtype"])
    read = tensors_read * n + vectors_read * hidden
    return Cost(flops * n, read * nbytes, (n + vectors_written * hidden) * nbytes)


def _torch_layer_norm(p: Params, x: Any, weight: Any, bias: Any) -> Launch:
    from torch.nn.functional import layer_norm

    return partial(layer_norm, x, (p["shape"][-1],), weight, bias, p["eps"])


def _rms_norm(p: Params, x: Any, weight: Any) -> Any:
    return rms(p, x) * weight


def _torch_rms_norm(p: Params, x: Any, weight: Any) -> Launch:
    from torch.nn.functional import rms_norm

    return partial(rms_norm, x, (p["shape"][-1],), weight, p["eps"])


def _in_dtype(formula: Any) -> Any:
    """Make a NumPy implementation of a reference: the same formula, with the result in the type of x."""

    def build(p: Params, x: Any, **rest: Any) -> Launch:
        return lambda: formula(p, x, **rest).astype(x.dtype, copy=False)

    return Implementation("numpy", build)


def _norm_inputs(*vectors: str) -> Any:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        weights = {name: TensorSpec((p["shape"][-1],), p["dtype"], 0.5, 1.5) for name in vectors}
        return {"x": TensorSpec(tuple(p["shape"]), p["dtype"]), **weights}

    return inputs


# With fewer elements, the result of normalising would be mostly rounding errors, which cannot be verified.
LONG_ENOUGH = Rule("shape", "have at least 4 elements along the last axis (got {shape})", lambda p: p["shape"][-1] >= 4)
NORM_PARAMS = (
    shape("shape", "shape of x; the last axis is normalised"),
    real("eps", "added to the variance before the root", 1e-5, kind="amount"),
    dtype(*FLOATS),
)

LAYER_NORM = Operator(
    name="layer_norm",
    summary="zero mean and unit variance along the last axis, then scale and shift",
    category="normalization",
    params=NORM_PARAMS,
    inputs=_norm_inputs("weight", "bias"),
    # Mean 1, difference 1, variance 2, quotient 1, scale and shift 2.
    cost=lambda p: _row_cost(p, flops=7, tensors_read=1, vectors_read=2),
    backward_cost=lambda p: _row_cost(p, flops=12, tensors_read=2, vectors_read=1, vectors_written=2),
    reference=layer_norm,
    presets=PRESETS,
    rules=(LONG_ENOUGH,),
    gradients=("x", "weight", "bias"),
    implementations=(_in_dtype(layer_norm), torch(_torch_layer_norm, "torch.nn.functional.layer_norm")),
    aliases=("LayerNorm", "layernorm"),
)

RMS_NORM = Operator(
    name="rms_norm",
    summary="unit root mean square along the last axis, then scale",
    category="normalization",
    params=NORM_PARAMS,
    inputs=_norm_inputs("weight"),
    # Square and sum 2, quotient 1, scale 1.
    cost=lambda p: _row_cost(p, flops=4, tensors_read=1, vectors_read=1),
    backward_cost=lambda p: _row_cost(p, flops=9, tensors_read=2, vectors_read=1, vectors_written=1),
    reference=_rms_norm,
    presets=PRESETS,
    rules=(LONG_ENOUGH,),
    gradients=("x", "weight"),
    implementations=(_in_dtype(_rms_norm), torch(_torch_rms_norm, "torch.nn.functional.rms_norm")),
    aliases=("RMSNorm", "rmsnorm"),
)

# -- moments are the mean and the variance.


def _reduced_axes(p: Params) -> tuple[int, ...]:
    return tuple(range(-(p["axes"] or len(p["shape"])), 0))


def _moments_cost(p: Params) -> Cost:
    n, rows, nbytes = prod(p["shape"]), _rows(p), sizeof(p["dtype"])
    return Cost(4 * n, n * nbytes, 2 * rows * nbytes)


def _moments_backward(p: Params) -> Cost:
    """Count per element: difference from the mean, times one gradient, plus the other."""
    n, rows, nbytes = prod(p["shape"]), _rows(p), sizeof(p["dtype"])
    return Cost(3 * n, (n + 3 * rows) * nbytes, n * nbytes)


def _rows(p: Params) -> int:
    return int(prod(p["shape"]) // prod(p["shape"][axis] for axis in _reduced_axes(p)))


def _moments(p: Params, x: Any) -> Any:
    return x.var(axis=_reduced_axes(p)), x.mean(axis=_reduced_axes(p))


def _torch_moments(p: Params, x: Any) -> Launch:
    from torch import var_mean

    return partial(var_mean, x, dim=_reduced_axes(p), correction=0)


MOMENTS = Operator(
    name="moments",
    summary="variance and mean along the last axes",
    category="reduction",
    params=(
        shape("shape", "shape of x"),
        integer("axes", "number of axes, counted from the last, of a variance; 0: all", 0, kind="count"),
        dtype(*FLOATS),
    ),
    # Not around zero, where a mean of many numbers would be mostly rounding errors.
    inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"], -1.0, 2.0)},
    # Mean 1, difference 1, variance 2.
    cost=_moments_cost,
    backward_cost=_moments_backward,
    reference=_moments,
    presets={
        "small": {"shape": [128, 256]},
        "typical": {"shape": [2048, 2048]},
        "large": {"shape": [8192, 8192]},
    },
    tolerance=Tolerance(terms=lambda p: prod(p["shape"]) // _rows(p)),
    rules=(
        Rule("axes", "be at most the number of axes of {shape} (got {axes})", lambda p: p["axes"] <= len(p["shape"])),
        Rule("shape", "have at least 2 elements along those axes (got {shape})",
             lambda p: p["axes"] > len(p["shape"]) or prod(p["shape"]) >= 2 * _rows(p)),
    ),
    gradients=("x",),
    implementations=(formula(_moments), torch(_torch_moments, "torch.var_mean")),
    aliases=("var_mean",),
)  # fmt: skip

OPERATORS = (LAYER_NORM, RMS_NORM, MOMENTS)
"""Found by the registry."""
