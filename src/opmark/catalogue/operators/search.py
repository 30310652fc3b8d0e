"""Searching: unique, nonzero, searchsorted, bincount, histogram, isin.

The length of some results depends on the data. A parameter then fixes it, so that the cost is known."""

from __future__ import annotations

from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import (
    EXACT,
    INDEX_BYTES,
    ORDERED,
    SHAPE,
    elements,
    index_dtype,
    reference_in_numpy,
    signed_spec,
)
from opmark.catalogue.operators._builders import calls, fill_by_block, formula, numpy, torch
from opmark.catalogue.operators._elementwise import PRESETS
from opmark.catalogue.operators.gather import MOVED
from opmark.plugin import Launch, Operator, ParamRule, Params
from opmark.plugin.param import dtype, flag, real, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, is_float, sizeof

COUNTED = ("float64", "float32", "int64", "int32")
"""Element types in which integers up to some millions are exact."""
MOST = 1 << 24


MOST_HALVES = 10_000
"""Different elements of float16, which has 31,743 positive finite values: every first to third of them is used."""


def _distinct(p: Params) -> int:
    distinct = max(1, elements(p) // int(p["repeats"]))
    return min(distinct, MOST_HALVES) if p["dtype"] == "float16" else distinct


def _with_repeats(p: Params, generator: Any) -> Any:
    """Return the given number of different integers, each at least once, in random order. For float16, whose integers
    are soon no longer exact, they are the bits of the elements."""
    values = np.cumsum(generator.integers(1, 4, _distinct(p)))
    if p["dtype"] == "float16":
        values = values.astype(np.uint16).view(np.float16)
    return generator.permutation(np.resize(values, elements(p))).reshape(p["shape"])


def _unique(p: Params, x: Any) -> Any:
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    found = (values, *((inverse.reshape(x.shape),) if p["inverse"] else ()), *((counts,) if p["counts"] else ()))
    return found if len(found) > 1 else values


def _numpy_unique(p: Params, x: Any) -> Launch:
    if not p["inverse"] and not p["counts"]:
        return lambda: np.unique(x)

    def launch() -> Any:
        values, *more = np.unique(x, return_inverse=p["inverse"], return_counts=p["counts"])
        if p["inverse"]:
            more[0] = more[0].reshape(x.shape)
        return values, *more

    return launch


def _unique_inputs(p: Params) -> dict[str, TensorSpec]:
    low, high = (0, 65504) if p["dtype"] == "float16" else (1, 3 * _distinct(p) + 1)
    return {"x": TensorSpec(tuple(p["shape"]), p["dtype"], low, high, lambda g: _with_repeats(p, g))}


def _unique_cost(p: Params) -> Cost:
    n, distinct, nbytes = elements(p), _distinct(p), sizeof(p["dtype"])
    indices = p["inverse"] * n + p["counts"] * distinct
    return Cost(0, n * nbytes, distinct * nbytes + indices * INDEX_BYTES)


UNIQUE = Operator(
    name="unique",
    summary="the different elements, sorted; each occurs several times",
    category="searching",
    params=(
        SHAPE,
        size("repeats", f"average number of occurrences of an element; more where float16 would have more than "
             f"{MOST_HALVES} different ones", 16),
        flag("inverse", "also return the index of each element of x in the result"),
        flag("counts", "also return the number of occurrences"),
        dtype(*COUNTED, "float16"),
    ),
    inputs=_unique_inputs,
    cost=_unique_cost,
    reference=_unique,
    further_dtypes=lambda _: ("int64",),
    tolerance=EXACT,
    presets={
        "small": {"shape": [64, 256]},
        "typical": {"shape": [512, 1024]},
        "large": {"shape": [4096, 8192]},
    },
    rules=(
        ParamRule("repeats", "be at most the number of elements of {shape} (got {repeats})",
             lambda p: p["repeats"] <= elements(p)),
        ParamRule("repeats", "leave at most 5 million different elements (got {repeats} for {shape})",
             lambda p: 3 * _distinct(p) < MOST),
    ),
    implementations=(
        numpy(_numpy_unique, "numpy.unique"),
        calls("torch.unique", "x", return_inverse="inverse", return_counts="counts"),
    ),
)  # fmt: skip


def density_count(p: Params) -> int:
    """Return the exact number of elements that the mask selects, so that the length of the result is known."""
    return max(1, int(elements(p) * p["density"]))


def make_mask(p: Params, generator: Any) -> Any:
    """Return a mask with exactly `density_count` elements that are true."""
    flags = np.zeros(elements(p), bool)
    flags[: density_count(p)] = True
    generator.shuffle(flags)
    return flags.reshape(p["shape"])


DENSITY = real("density", "share of the elements, from 0 to 1", 0.5, kind="amount")
DENSITY_IS_A_PART = ParamRule("density", "be at most 1 (got {density})", lambda p: p["density"] <= 1)


def _mostly_zero(p: Params) -> TensorSpec:
    high = 1 if is_float(p["dtype"]) else 2
    return TensorSpec(tuple(p["shape"]), p["dtype"], 0, high, lambda g: make_mask(p, g).astype(np.float64))


NONZERO = Operator(
    name="nonzero",
    summary="the indices of all elements that are not zero, one row each",
    category="searching",
    params=(SHAPE, DENSITY, dtype(*ORDERED, "bool")),
    inputs=lambda p: {"x": _mostly_zero(p)},
    cost=lambda p: Cost(0, elements(p) * sizeof(p["dtype"]), density_count(p) * len(p["shape"]) * INDEX_BYTES),
    reference=lambda p, x: np.argwhere(x),
    tolerance=EXACT,
    result_dtype=index_dtype,
    presets={
        "small": {"shape": [256, 256]},
        "typical": {"shape": [1024, 1024]},
        "large": {"shape": [4096, 8192]},
    },
    rules=(DENSITY_IS_A_PART,),
    implementations=(numpy(lambda p, x: lambda: np.argwhere(x), "numpy.argwhere"), calls("torch.nonzero", "x")),
    aliases=("argwhere",),
)


def _search_inputs(p: Params) -> dict[str, TensorSpec]:
    bound = 1.0 if is_float(p["dtype"]) else 100_000

    def table(generator: Any) -> Any:
        drawn = generator.uniform(-bound, bound, p["entries"])
        return np.sort(drawn if is_float(p["dtype"]) else np.floor(drawn))

    return {
        "table": TensorSpec((p["entries"],), p["dtype"], -bound, bound, table),
        "values": TensorSpec((p["values"],), p["dtype"], -bound, bound),
    }


def _search_cost(p: Params) -> Cost:
    """Each value is compared with one entry per bisection step; the table is read at most in full."""
    touched = min(p["entries"], p["values"] * int(p["entries"]).bit_length())
    return Cost(0, (touched + p["values"]) * sizeof(p["dtype"]), p["values"] * INDEX_BYTES)


def _search(p: Params, table: Any, values: Any) -> Any:
    return np.searchsorted(table, values, side="right" if p["right"] else "left")


SEARCHSORTED = Operator(
    name="searchsorted",
    summary="positions of values in a sorted table",
    category="searching",
    params=(
        size("entries", "length of the table"),
        size("values", "how many values are looked up"),
        flag("right", "after equal entries, not before them"),
        dtype(*ORDERED),
    ),
    inputs=_search_inputs,
    cost=_search_cost,
    reference=_search,
    tolerance=EXACT,
    result_dtype=index_dtype,
    presets={
        "small": {"entries": 16384, "values": 256},
        "typical": {"entries": 1 << 20, "values": 1 << 14},
        "large": {"entries": 1 << 24, "values": 1 << 20},
    },
    partial=True,
    implementations=(reference_in_numpy(_search), calls("torch.searchsorted", "table", "values", right="right")),
    aliases=("bucketize",),
)

BINCOUNT = Operator(
    name="bincount",
    summary="number of occurrences of each integer",
    category="searching",
    params=(
        size("values", "how many numbers"),
        size("bins", "upper bound of the integers"),
        dtype("int64", "int32", default="int64"),
    ),
    inputs=lambda p: {"x": TensorSpec((p["values"],), p["dtype"], 0, p["bins"])},
    cost=lambda p: Cost(0, p["values"] * sizeof(p["dtype"]), p["bins"] * INDEX_BYTES),
    reference=lambda p, x: np.bincount(x, minlength=p["bins"]),
    result_dtype=index_dtype,
    presets={
        "small": {"values": 16384, "bins": 256},
        "typical": {"values": 1 << 20, "bins": 1024},
        "large": {"values": 1 << 26, "bins": 65536},
    },
    implementations=(
        numpy(lambda p, x: lambda: np.bincount(x, minlength=p["bins"]), "numpy.bincount"),
        calls("torch.bincount", "x", minlength="bins"),
    ),
)


def _inside_bins(p: Params, generator: Any) -> Any:
    """Return values away from the borders of bins, where rounding may decide the bin."""

    def draw(n: int) -> Any:
        return generator.integers(0, p["bins"], n) + generator.uniform(0.1, 0.9, n)

    return fill_by_block(p["shape"], draw) * 2 / p["bins"] - 1


def _torch_histogram(p: Params, x: Any) -> Launch:
    import torch

    return lambda: torch.histc(x, p["bins"], -1.0, 1.0)


HISTOGRAM = Operator(
    name="histogram",
    summary="number of elements in each of several equal parts of [-1, 1]",
    category="searching",
    params=(SHAPE, size("bins", "number of parts", 256), dtype("float64", "float32")),
    inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"], make=lambda g: _inside_bins(p, g))},
    # The bin of an element takes a difference and a product.
    cost=lambda p: Cost(2 * elements(p), elements(p) * sizeof(p["dtype"]), p["bins"] * sizeof(p["dtype"])),
    reference=lambda p, x: np.histogram(x, p["bins"], (-1.0, 1.0))[0].astype(np.float64),
    tolerance=EXACT,
    presets={
        "small": {"shape": [64, 256]},
        "typical": {"shape": [1024, 1024]},
        "large": {"shape": [8192, 4096]},
    },
    rules=(ParamRule("bins", "be at most 65536 (got {bins})", lambda p: p["bins"] <= 65536),),
    implementations=(
        formula(lambda p, x: np.histogram(x, p["bins"], (-1.0, 1.0))[0]),
        torch(_torch_histogram, "torch.histc"),
    ),
    aliases=("histc",),
)


def _isin_inputs(p: Params) -> dict[str, TensorSpec]:
    """Return integers below twice the number of candidates, so that some are candidates and some are not."""
    high = 2 * p["candidates"]

    def spec(shape: Any) -> TensorSpec:
        return TensorSpec(
            tuple(shape), p["dtype"], 0, high, lambda g: fill_by_block(shape, lambda n: g.integers(0, high, n))
        )

    return {"x": spec(p["shape"]), "candidates": spec([p["candidates"]])}


ISIN = Operator(
    name="isin",
    summary="whether each element is one of the candidates",
    category="searching",
    params=(shape("shape", "shape of x"), size("candidates", "how many candidates"), dtype(*COUNTED)),
    inputs=_isin_inputs,
    cost=lambda p: Cost(0, (elements(p) + p["candidates"]) * sizeof(p["dtype"]), elements(p) * sizeof("bool")),
    reference=lambda p, x, candidates: np.isin(x, candidates),
    tolerance=EXACT,
    result_dtype=lambda p: "bool",
    presets={
        "small": {"shape": [64, 64], "candidates": 64},
        "typical": {"shape": [256, 1024], "candidates": 1024},
        "large": {"shape": [4096, 4096], "candidates": 65536},
    },
    rules=(ParamRule("candidates", "be at most 8 million (got {candidates})", lambda p: 2 * p["candidates"] <= MOST),),
    implementations=(
        reference_in_numpy(lambda p, x, candidates: np.isin(x, candidates)),
        calls("torch.isin", "x", "candidates"),
    ),
)


# Operators with a mask: where, masked_fill, masked_select.

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


OPERATORS = (
    UNIQUE,
    NONZERO,
    SEARCHSORTED,
    BINCOUNT,
    HISTOGRAM,
    ISIN,
    WHERE,
    MASKED_FILL,
    MASKED_SELECT,
)
