"""Reductions along an axis: sums, means, products, norms, truth values and counts."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import (
    EXACT,
    PRESETS,
    SHAPE,
    Work,
    axis_keywords,
    custom_spec,
    elements,
    index_dtype,
    length,
    near_one_spec,
    reduction,
    reference_in_numpy,
    same_dtype,
    signed_spec,
)
from opmark.catalogue.operators._builders import calls, fill_by_block, formula, torch
from opmark.catalogue.operators._elementwise import away_from
from opmark.plugin import Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, integer, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, is_float, sizeof


def _sum_dtype(p: Params) -> str:
    """Return the type of a sum: integers are added up in 64 bits."""
    return same_dtype(p) if is_float(p["dtype"]) else "int64"


# Values lie between -1 and 1, so that their mean square is 1/3.
SUM = Tolerance(terms=length, magnitude=lambda p: (length(p) / 3) ** 0.5)
MEAN = Tolerance(terms=length, magnitude=lambda p: (3 * length(p)) ** -0.5)

REDUCE_SUM = reduction(
    "reduce_sum",
    "sum along an axis",
    torch="torch.sum",
    reference=lambda p, x: np.sum(x, **axis_keywords(p)),
    outputs=(_sum_dtype,),
    dtypes=(*FLOATS, "int64", "int32"),
    tolerance=SUM,
    aliases=("sum", "sum_axis"),
)
REDUCE_MEAN = reduction(
    "reduce_mean",
    "mean along an axis",
    torch="torch.mean",
    reference=lambda p, x: np.mean(x, **axis_keywords(p)),
    work=Work(flops=1, row_flops=1),
    backward=Work(row_flops=1),
    tolerance=MEAN,
    aliases=("mean",),
)
# On a CPU, torch rounds to 16 bits after every factor, so a long product cannot be verified.
PRODUCT_DTYPES = ("float64", "float32")

PROD = reduction(
    "prod",
    "product along an axis",
    torch="torch.prod",
    reference=lambda p, x: np.prod(x, **axis_keywords(p)),
    spec=near_one_spec,
    dtypes=PRODUCT_DTYPES,
    # The product divided by each factor, times the incoming gradient.
    backward=Work(flops=2, reads=1, row_reads=2),
    # The gradients of a row share the rounding of its product, so that their errors do not cancel.
    tolerance=Tolerance(gradient_factor=32.0),
    aliases=("reduce_prod",),
)


def _with_missing(whole: Callable[[Params], TensorSpec]) -> Callable[[Params], TensorSpec]:
    """Make about a tenth of the values NaN, but never a whole row, whose mean would be NaN."""

    def make(p: Params, generator: Any) -> Any:
        spec = whole(p)
        x = fill_by_block(p["shape"], lambda n: generator.uniform(spec.low, spec.high, n))
        missing = fill_by_block(p["shape"], lambda n: generator.random(n) < 0.1)
        np.moveaxis(missing, p["axis"], 0)[0] = False
        x[missing] = np.nan
        return x

    return lambda p: custom_spec(whole(p).low, whole(p).high, make)(p)


def _torch_nanprod(p: Params, x: Any) -> Launch:
    """Combine two functions, as torch has none for it."""
    import torch

    return lambda: torch.prod(torch.where(torch.isnan(x), 1.0, x), p["axis"], p["keepdims"])


NANSUM = reduction(
    "nansum",
    "sum along an axis, ignoring NaN (a tenth of the data)",
    torch="torch.nansum",
    reference=lambda p, x: np.nansum(x, **axis_keywords(p)),
    spec=_with_missing(signed_spec),
    backward=Work(reads=1),
    tolerance=SUM,
)
NANMEAN = reduction(
    "nanmean",
    "mean along an axis, ignoring NaN (a tenth of the data)",
    torch="torch.nanmean",
    reference=lambda p, x: np.nanmean(x, **axis_keywords(p)),
    spec=_with_missing(signed_spec),
    work=Work(flops=1, row_flops=1),
    backward=Work(row_flops=1, reads=1),
    tolerance=MEAN,
)
NANPROD = reduction(
    "nanprod",
    "product along an axis, ignoring NaN (a tenth of the data)",
    torch=torch(_torch_nanprod),
    reference=lambda p, x: np.nanprod(x, **axis_keywords(p)),
    spec=_with_missing(near_one_spec),
    dtypes=PRODUCT_DTYPES,
    backward=Work(flops=2, reads=1, row_reads=2),
)

CORRECTION = integer("correction", "the sum of squares is divided by the length minus this", 1, kind="count")
CORRECTED = ParamRule("correction", "be less than the length of the axis of {shape} (got {correction})",
                 lambda p: p["correction"] < length(p))  # fmt: skip
# The variance of a single element is 0, and its root has no derivative.
LONG = ParamRule("shape", "have at least 2 elements along axis {axis} (got {shape})", lambda p: length(p) >= 2)

VAR = reduction(
    "var",
    "variance along an axis",
    torch=calls("torch.var", "x", dim="axis", keepdim="keepdims", correction="correction"),
    reference=lambda p, x: np.var(x, ddof=p["correction"], **axis_keywords(p)),
    # Mean 1, difference 1, square and sum 2.
    work=Work(flops=4, row_flops=2),
    # Mean 1, difference 1, times the incoming gradient 1.
    backward=Work(flops=3, row_flops=2, reads=1),
    params=(CORRECTION,),
    rules=(CORRECTED, LONG),
    aliases=("variance",),
)
STD = reduction(
    "std",
    "standard deviation along an axis",
    torch=calls("torch.std", "x", dim="axis", keepdim="keepdims", correction="correction"),
    reference=lambda p, x: np.std(x, ddof=p["correction"], **axis_keywords(p)),
    work=Work(flops=4, row_flops=3),
    backward=Work(flops=3, row_flops=3, reads=1, row_reads=2),
    params=(CORRECTION,),
    rules=(CORRECTED, LONG),
    aliases=("standard_deviation",),
)

_away_from_zero = away_from([0.0])


def _norm_direction(p: Params, name: str, generator: Any, array: Any) -> Any:
    """Avoid zero, where the sum of magnitudes has a kink."""
    if p["ord"] == 1:
        return _away_from_zero(p, name, generator, array)
    return generator.choice((-1.0, 1.0), size=array.shape)


NORM = reduction(
    "norm",
    "length of the vectors along an axis: sum of magnitudes (ord 1) or root of the sum of squares (ord 2)",
    torch=calls("torch.linalg.vector_norm", "x", ord="ord", dim="axis", keepdim="keepdims"),
    reference=lambda p, x: np.linalg.norm(x, ord=p["ord"], **axis_keywords(p)),
    # Magnitude or square 1, sum 1; a root per row.
    work=Work(flops=2, row_flops=1),
    backward=Work(flops=1, row_flops=1, reads=1, row_reads=2),
    params=(integer("ord", "1 for the sum of magnitudes, 2 for the Euclidean length", 2),),
    rules=(ParamRule("ord", "be 1 or 2 (got {ord})", lambda p: p["ord"] in (1, 2)),),
    direction=_norm_direction,
    aliases=("vector_norm", "l2_norm"),
)


def _logsumexp(p: Params, x: Any) -> Any:
    top = np.max(x, axis=p["axis"], keepdims=True)
    total = np.log(np.sum(np.exp(x - top), axis=p["axis"], keepdims=True)) + top
    return total if p["keepdims"] else np.squeeze(total, p["axis"])


LOGSUMEXP = reduction(
    "logsumexp",
    "log of the sum of exp(x) along an axis",
    torch="torch.logsumexp",
    reference=_logsumexp,
    # Difference, exponential, sum; a logarithm and a sum per row.
    work=Work(flops=3, row_flops=2),
    backward=Work(flops=3, reads=1, row_reads=2),
    aliases=("log_sum_exp",),
)


# Truth values and counts of elements: any, all, count_nonzero, all_finite; and sums of squares of several tensors.

ANYTHING = (*FLOATS, "int64", "int32", "int8", "bool")
"""Without uint8, for which torch returns uint8 instead of bool for compatibility."""


def _truth(p: Params) -> str:
    return "bool"


def _rarely(p: Params, generator: Any) -> Any:
    """Return ones so rare that half of the rows have none."""
    return fill_by_block(p["shape"], lambda n: generator.random(n) < log(2) / length(p)).astype(np.float64)


def _zeros_and_ones(p: Params, generator: Any) -> Any:
    return fill_by_block(p["shape"], lambda n: generator.integers(0, 2, n)).astype(np.float64)


def _spec(make: Any) -> Any:
    """Return a spec of zeros and ones; the upper bound of integers is exclusive."""

    def spec(p: Params) -> TensorSpec:
        return custom_spec(0, 1 if p["dtype"] in FLOATS else 2, make)(p)

    return spec


# A search may end at the first hit, but half of the rows have none and must be read in full.
ANY = reduction(
    "any",
    "whether any element along an axis is not zero (in half of the rows none is)",
    torch="torch.any",
    reference=lambda p, x: np.any(x, **axis_keywords(p)),
    in_numpy=reference_in_numpy(lambda p, x: np.any(x, **axis_keywords(p))),
    outputs=(_truth,),
    dtypes=ANYTHING,
    spec=_spec(_rarely),
    work=Work(),
    gradients=False,
    aliases=("reduce_any",),
)
ALL = reduction(
    "all",
    "whether all elements along an axis are not zero (in half of the rows one is zero)",
    torch="torch.all",
    reference=lambda p, x: np.all(x, **axis_keywords(p)),
    in_numpy=reference_in_numpy(lambda p, x: np.all(x, **axis_keywords(p))),
    outputs=(_truth,),
    dtypes=ANYTHING,
    spec=_spec(lambda p, generator: 1 - _rarely(p, generator)),
    work=Work(),
    gradients=False,
    aliases=("reduce_all",),
)
COUNT_NONZERO = reduction(
    "count_nonzero",
    "how many elements along an axis are not zero",
    torch="torch.count_nonzero",
    reference=lambda p, x: np.count_nonzero(x, axis=p["axis"]),
    in_numpy=reference_in_numpy(lambda p, x: np.count_nonzero(x, axis=p["axis"])),
    outputs=(index_dtype,),
    dtypes=ANYTHING,
    spec=_spec(_zeros_and_ones),
    keepdims=False,
    work=Work(),
    tolerance=EXACT,
    gradients=False,
)


def _torch_all_finite(p: Params, **tensors: Any) -> Launch:
    import torch

    several = tuple(tensors.values())
    if len(several) == 1:
        return lambda: torch.isfinite(several[0]).all()
    return lambda: torch.stack([torch.isfinite(x).all() for x in several]).all()


def _all_finite(p: Params, **tensors: Any) -> Any:
    return np.all([np.isfinite(x).all() for x in tensors.values()])


ALL_FINITE = Operator(
    name="all_finite",
    summary="whether no element is infinite or NaN, as one truth value",
    category="reduction",
    params=(SHAPE, dtype(*FLOATS)),
    inputs=lambda p: {"x": signed_spec(p)},
    cost=lambda p: Cost(0, elements(p) * sizeof(p["dtype"]), sizeof("bool")),
    reference=_all_finite,
    result="constant",
    result_dtype=_truth,
    presets=PRESETS,
    implementations=(reference_in_numpy(_all_finite), torch(_torch_all_finite)),
)

SEVERAL = (
    shape("shape", "shape of each tensor"),
    size("tensors", "how many tensors", 8),
    dtype(*FLOATS),
)
SEVERAL_PRESETS = {
    "small": {"shape": [64, 64]},
    "typical": {"shape": [512, 512]},
    "large": {"shape": [2048, 2048]},
}


def _several(p: Params) -> dict[str, TensorSpec]:
    return {f"x{i}": signed_spec(p) for i in range(p["tensors"])}


MULTI_ALL_FINITE = Operator(
    name="multi_all_finite",
    summary="whether no element of several tensors is infinite or NaN, as one truth value",
    category="reduction",
    params=SEVERAL,
    inputs=_several,
    cost=lambda p: Cost(0, p["tensors"] * elements(p) * sizeof(p["dtype"]), sizeof("bool")),
    reference=_all_finite,
    result="constant",
    result_dtype=_truth,
    presets=SEVERAL_PRESETS,
    implementations=(reference_in_numpy(_all_finite), torch(_torch_all_finite)),
)


def _counted_dtype(p: Params) -> str:
    """Return the type of the sums: a sum of a few hundred thousand squares does not fit into float16."""
    return "float64" if p["dtype"] == "float64" else "float32"


def _sum_sq(p: Params, **tensors: Any) -> Any:
    return np.array([np.square(x).sum() for x in tensors.values()])


def _torch_sum_sq(p: Params, **tensors: Any) -> Launch:
    import torch

    wide, norm = getattr(torch, _counted_dtype(p)), torch.linalg.vector_norm
    return lambda: torch.stack([norm(x, dtype=wide) for x in tensors.values()]).square()


def _torch_foreach(p: Params, **tensors: Any) -> Launch:
    """Compute it as torch.nn.utils.clip_grad_norm_ does."""
    import torch

    wide, several = getattr(torch, _counted_dtype(p)), list(tensors.values())
    return lambda: torch.stack(torch._foreach_norm(several, 2, dtype=wide)).square()


MULTI_SUM_SQ = Operator(
    name="multi_sum_sq",
    summary="sum of squares of each of several tensors",
    category="reduction",
    params=SEVERAL,
    inputs=_several,
    cost=lambda p: Cost(
        2 * p["tensors"] * elements(p),
        p["tensors"] * elements(p) * sizeof(p["dtype"]),
        p["tensors"] * sizeof(_counted_dtype(p)),
    ),
    reference=_sum_sq,
    tolerance=Tolerance(terms=elements),
    result_dtype=_counted_dtype,
    presets=SEVERAL_PRESETS,
    implementations=(
        formula(_sum_sq, _counted_dtype),
        torch(_torch_sum_sq),
        torch(_torch_foreach, "torch._foreach_norm", "torch-foreach"),
    ),
)


OPERATORS = (
    REDUCE_SUM,
    REDUCE_MEAN,
    PROD,
    NANSUM,
    NANMEAN,
    NANPROD,
    VAR,
    STD,
    NORM,
    LOGSUMEXP,
    ANY,
    ALL,
    COUNT_NONZERO,
    ALL_FINITE,
    MULTI_ALL_FINITE,
    MULTI_SUM_SQ,
)
