"""Reductions along an axis: sums, means, products, norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._axis import (
    Work,
    axis_keywords,
    custom_spec,
    length,
    near_one_spec,
    reduction,
    same_dtype,
    signed_spec,
)
from opmark.operators._build import calls, torch
from opmark.operators._pointwise import away_from
from opmark.operators._repeated import fill_by_block
from opmark.schema import Launch, Params, Rule, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, is_float
from opmark.schema.param import integer


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
CORRECTED = Rule("correction", "be less than the length of the axis of {shape} (got {correction})",
                 lambda p: p["correction"] < length(p))  # fmt: skip
# The variance of a single element is 0, and its root has no derivative.
LONG = Rule("shape", "have at least 2 elements along axis {axis} (got {shape})", lambda p: length(p) >= 2)

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
    rules=(Rule("ord", "be 1 or 2 (got {ord})", lambda p: p["ord"] in (1, 2)),),
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

OPERATORS = (REDUCE_SUM, REDUCE_MEAN, PROD, NANSUM, NANMEAN, NANPROD, VAR, STD, NORM, LOGSUMEXP)
