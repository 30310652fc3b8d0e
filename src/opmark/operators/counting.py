"""Truth values and counts of elements: any, all, count_nonzero, all_finite; and sums of squares of several tensors."""

from __future__ import annotations

from math import log
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._axis import (
    EXACT,
    PRESETS,
    SHAPE,
    Work,
    axis_keywords,
    custom_spec,
    elements,
    index_dtype,
    length,
    reduction,
    reference_in_numpy,
    signed_spec,
)
from opmark.operators._build import formula, torch
from opmark.operators._repeated import fill_by_block
from opmark.schema import Cost, Launch, Operator, Params, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, shape, size

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


def _sum_dtype(p: Params) -> str:
    """Return the type of the sums: a sum of a few hundred thousand squares does not fit into float16."""
    return "float64" if p["dtype"] == "float64" else "float32"


def _sum_sq(p: Params, **tensors: Any) -> Any:
    return np.array([np.square(x).sum() for x in tensors.values()])


def _torch_sum_sq(p: Params, **tensors: Any) -> Launch:
    import torch

    wide, norm = getattr(torch, _sum_dtype(p)), torch.linalg.vector_norm
    return lambda: torch.stack([norm(x, dtype=wide) for x in tensors.values()]).square()


def _torch_foreach(p: Params, **tensors: Any) -> Launch:
    """Compute it as torch.nn.utils.clip_grad_norm_ does."""
    import torch

    wide, several = getattr(torch, _sum_dtype(p)), list(tensors.values())
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
        p["tensors"] * sizeof(_sum_dtype(p)),
    ),
    reference=_sum_sq,
    tolerance=Tolerance(terms=elements),
    result_dtype=_sum_dtype,
    presets=SEVERAL_PRESETS,
    implementations=(
        formula(_sum_sq, _sum_dtype),
        torch(_torch_sum_sq),
        torch(_torch_foreach, "torch._foreach_norm", "torch-foreach"),
    ),
)

OPERATORS = (ANY, ALL, COUNT_NONZERO, ALL_FINITE, MULTI_ALL_FINITE, MULTI_SUM_SQ)
