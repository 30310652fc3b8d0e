"""One number for all elements along an axis: sums, means, products, norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._axis import Work, along, around_one, length, made, reduction, same_dtype, signed
from opmark.operators._build import calls, torch
from opmark.operators._pointwise import away_from
from opmark.operators._repeated import filled
from opmark.schema import Launch, Params, Rule, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, is_float
from opmark.schema.param import integer


def _wide(p: Params) -> str:
    """Whole numbers are added up in 64 bits."""
    return same_dtype(p) if is_float(p["dtype"]) else "int64"


# Of values between -1 and 1, whose mean square is 1/3.
SUM = Tolerance(terms=length, magnitude=lambda p: (length(p) / 3) ** 0.5)
MEAN = Tolerance(terms=length, magnitude=lambda p: (3 * length(p)) ** -0.5)

REDUCE_SUM = reduction(
    "reduce_sum",
    "sum along an axis",
    torch="torch.sum",
    reference=lambda p, x: np.sum(x, **along(p)),
    outputs=(_wide,),
    dtypes=(*FLOATS, "int64", "int32"),
    tolerance=SUM,
    aliases=("sum", "sum_axis"),
)
REDUCE_MEAN = reduction(
    "reduce_mean",
    "mean along an axis",
    torch="torch.mean",
    reference=lambda p, x: np.mean(x, **along(p)),
    work=Work(flops=1, row_flops=1),
    backward=Work(row_flops=1),
    tolerance=MEAN,
    aliases=("mean",),
)
# On a CPU torch rounds to 16 bits after every factor: of a long product nothing is left that could be verified.
PRODUCT_DTYPES = ("float64", "float32")

PROD = reduction(
    "prod",
    "product along an axis",
    torch="torch.prod",
    reference=lambda p, x: np.prod(x, **along(p)),
    spec=around_one,
    dtypes=PRODUCT_DTYPES,
    # The product over each factor, times the incoming gradient.
    backward=Work(flops=2, reads=1, row_reads=2),
    aliases=("reduce_prod",),
)


def _some_missing(whole: Callable[[Params], TensorSpec]) -> Callable[[Params], TensorSpec]:
    """About a tenth is NaN, but never a whole row: its mean would be NaN."""

    def make(p: Params, generator: Any) -> Any:
        spec = whole(p)
        x = filled(p["shape"], lambda n: generator.uniform(spec.low, spec.high, n))
        missing = filled(p["shape"], lambda n: generator.random(n) < 0.1)
        np.moveaxis(missing, p["axis"], 0)[0] = False
        x[missing] = np.nan
        return x

    return lambda p: made(whole(p).low, whole(p).high, make)(p)


def _torch_nanprod(p: Params, x: Any) -> Launch:
    """torch has no function of its own for it."""
    import torch

    return lambda: torch.prod(torch.where(torch.isnan(x), 1.0, x), p["axis"], p["keepdims"])


NANSUM = reduction(
    "nansum",
    "sum along an axis without what is NaN (a tenth of the data)",
    torch="torch.nansum",
    reference=lambda p, x: np.nansum(x, **along(p)),
    spec=_some_missing(signed),
    backward=Work(reads=1),
    tolerance=SUM,
)
NANMEAN = reduction(
    "nanmean",
    "mean along an axis without what is NaN (a tenth of the data)",
    torch="torch.nanmean",
    reference=lambda p, x: np.nanmean(x, **along(p)),
    spec=_some_missing(signed),
    work=Work(flops=1, row_flops=1),
    backward=Work(row_flops=1, reads=1),
    tolerance=MEAN,
)
NANPROD = reduction(
    "nanprod",
    "product along an axis without what is NaN (a tenth of the data)",
    torch=torch(_torch_nanprod),
    reference=lambda p, x: np.nanprod(x, **along(p)),
    spec=_some_missing(around_one),
    dtypes=PRODUCT_DTYPES,
    backward=Work(flops=2, reads=1, row_reads=2),
)

CORRECTION = integer("correction", "the sum of squares is divided by the length less this", 1, kind="count")
CORRECTED = Rule("correction", "be less than the length of the axis of {shape} (got {correction})",
                 lambda p: p["correction"] < length(p))  # fmt: skip
# A single one has no spread: the variance would be nothing but rounding, and its root has no slope.
LONG = Rule("shape", "have at least 2 elements along axis {axis} (got {shape})", lambda p: length(p) >= 2)

VAR = reduction(
    "var",
    "variance along an axis",
    torch=calls("torch.var", "x", dim="axis", keepdim="keepdims", correction="correction"),
    reference=lambda p, x: np.var(x, ddof=p["correction"], **along(p)),
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
    reference=lambda p, x: np.std(x, ddof=p["correction"], **along(p)),
    work=Work(flops=4, row_flops=3),
    backward=Work(flops=3, row_flops=3, reads=1, row_reads=2),
    params=(CORRECTION,),
    rules=(CORRECTED, LONG),
    aliases=("standard_deviation",),
)

_away_from_zero = away_from([0.0])


def _norm_direction(p: Params, name: str, generator: Any, array: Any) -> Any:
    """The sum of magnitudes has a kink at zero."""
    if p["ord"] == 1:
        return _away_from_zero(p, name, generator, array)
    return generator.choice((-1.0, 1.0), size=array.shape)


NORM = reduction(
    "norm",
    "length of the vectors along an axis: sum of magnitudes (ord 1) or root of the sum of squares (ord 2)",
    torch=calls("torch.linalg.vector_norm", "x", ord="ord", dim="axis", keepdim="keepdims"),
    reference=lambda p, x: np.linalg.norm(x, ord=p["ord"], **along(p)),
    # Magnitude or square 1, sum 1; a root a row.
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
    # Difference, exponential, sum; a logarithm and a sum a row.
    work=Work(flops=3, row_flops=2),
    backward=Work(flops=3, reads=1, row_reads=2),
    aliases=("log_sum_exp",),
)

OPERATORS = (REDUCE_SUM, REDUCE_MEAN, PROD, NANSUM, NANMEAN, NANPROD, VAR, STD, NORM, LOGSUMEXP)
