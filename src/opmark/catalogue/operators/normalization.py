"""Operators that normalise: layer_norm and rms_norm along the last axis, moments, and division by a length."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls, formula, layer_norm, rms, torch
from opmark.catalogue.operators.channel_norm import IMAGES, SHAPE
from opmark.plugin import Implementation, Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import choice, dtype, flag, integer, real, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

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


def _torch_layer_norm(p: Params, x: Any, weight: Any, bias: Any = None) -> Launch:
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


def _has_bias(p: Params) -> bool:
    return bool(p.get("bias", True))


def _norm_inputs(*vectors: str) -> Any:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        used = [name for name in vectors if name != "bias" or _has_bias(p)]
        weights = {name: TensorSpec((p["shape"][-1],), p["dtype"], 0.5, 1.5) for name in used}
        return {"x": TensorSpec(tuple(p["shape"]), p["dtype"]), **weights}

    return inputs


# With fewer elements, the result of normalising would be mostly rounding errors, which cannot be verified.
LONG_ENOUGH = ParamRule(
    "shape", "have at least 4 elements along the last axis (got {shape})", lambda p: p["shape"][-1] >= 4
)
NORM_PARAMS = (
    shape("shape", "shape of x; the last axis is normalised"),
    real("eps", "added to the variance before the root", 1e-5, kind="amount"),
    dtype(*FLOATS),
)

LAYER_NORM = Operator(
    name="layer_norm",
    summary="zero mean and unit variance along the last axis, then scale and shift",
    category="normalization",
    params=(*NORM_PARAMS, flag("bias", "a vector is added in the end", default=True, later=True)),
    inputs=_norm_inputs("weight", "bias"),
    # Mean 1, difference 1, variance 2, quotient 1, scale and shift 2.
    cost=lambda p: _row_cost(p, flops=6 + _has_bias(p), tensors_read=1, vectors_read=1 + _has_bias(p)),
    backward_cost=lambda p: _row_cost(
        p, flops=11 + _has_bias(p), tensors_read=2, vectors_read=1, vectors_written=1 + _has_bias(p)
    ),
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
        ParamRule("axes", "be at most the number of axes of {shape} (got {axes})",
             lambda p: p["axes"] <= len(p["shape"])),
        ParamRule("shape", "have at least 2 elements along those axes (got {shape})",
             lambda p: p["axes"] > len(p["shape"]) or prod(p["shape"]) >= 2 * _rows(p)),
    ),
    gradients=("x",),
    implementations=(formula(_moments), torch(_torch_moments, "torch.var_mean")),
    aliases=("var_mean",),
)  # fmt: skip
"""Found by the registry."""


# Operators that divide by a length: l2_normalize, weight_norm, and lrn, which takes neighbouring channels.


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
        ParamRule("mode", "select an existing axis of {shape} (got {mode})",
             lambda p: len(p["shape"]) > (2 if p["mode"] == "spatial" else 1)),
        # A single element would become 1 or -1.
        ParamRule("shape", "have at least 2 elements along the axes of mode={mode} (got {shape})",
             lambda p: prod(p["shape"][axis] for axis in _axes(p)) >= 2),
    ),
    gradients=("x",),
    # The length to the power of three, of a sum that some frameworks take in the type of x.
    tolerance=Tolerance(gradient_factor=4.0),
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
        ParamRule("shape", "have at least 3 axes, of which the second is the channels (got {shape})",
             lambda p: len(p["shape"]) >= 3),
        ParamRule("k", "be above 0", lambda p: p["k"] > 0),
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
    rules=(ParamRule("shape", "have at least 2 axes and 2 elements per row (got {shape})",
                lambda p: prod(p["shape"][1:]) >= 2),),
    gradients=("v", "g"),
    # A private function, but torch's own parametrization calls it.
    implementations=(formula(_weight_norm), calls("torch._weight_norm", "v", "g")),
)  # fmt: skip
"""Found by the registry."""


OPERATORS = (
    LAYER_NORM,
    RMS_NORM,
    MOMENTS,
    L2_NORMALIZE,
    LRN,
    WEIGHT_NORM,
)
