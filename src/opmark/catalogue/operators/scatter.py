"""Operators that write elements or rows by index: scatter, scatter_add, index_add, index_put, index_fill.

Most of them return a changed copy, as training needs it. The operators that change their tensor in place touch only
the elements that are written.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import (
    AXIS_EXISTS,
    INDEX_BYTES,
    SHAPE,
    elements,
    length,
    reference_in_numpy,
    rows,
    signed_spec,
)
from opmark.catalogue.operators._builders import formula, numpy, torch
from opmark.catalogue.operators.gather import (
    FIRST_AXIS,
    GATHER_PRESETS,
    MOVED,
    ROWS_PRESETS,
    broadcast,
    expansion_shapes,
    index_shape,
)
from opmark.plugin import Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, real, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

LENGTH = size("length", "length of index and source along the axis")
ROWS = size("indices", "number of rows that are written")
FITS = ParamRule("length", "be at most the length of axis {axis} of {shape} (got {length}): each place is written once",
            lambda p: p["length"] <= length(p))  # fmt: skip
ROWS_FIT = ParamRule("indices",
                "be at most the length of axis {axis} of {shape} (got {indices}): each row is written once",
                lambda p: p["indices"] <= length(p))  # fmt: skip
ROWS_STAY = ParamRule("indices", "be less than the length of axis {axis} of {shape} (got {indices}): one row must stay",
                 lambda p: p["indices"] < length(p))  # fmt: skip


def _source(p: Params, shape: tuple[int, ...]) -> TensorSpec:
    return signed_spec({**p, "shape": shape})


def _unique_indices(p: Params, generator: Any) -> Any:
    """Return indices along the axis without repeats: of two elements written to the same place, either may win."""
    order = generator.permutation(length(p))
    start = generator.integers(0, length(p), rows(p))
    index = order[(np.arange(p["length"])[:, None] + start) % length(p)]
    axis = p["axis"] % len(p["shape"])
    others = [n for i, n in enumerate(p["shape"]) if i != axis]
    return np.moveaxis(index.reshape(p["length"], *others), 0, axis)


def _scatter_inputs(unique: bool) -> Callable[[Params], dict[str, TensorSpec]]:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        shape = index_shape(p)
        make = (lambda generator: _unique_indices(p, generator)) if unique else None
        index = TensorSpec(shape, "int64", 0, length(p), make)
        return {"x": signed_spec(p), "index": index, "src": _source(p, shape)}

    return inputs


def _written_elements(p: Params) -> int:
    return prod(index_shape(p))


def _copy_cost(put: Callable[[Params], int], indices: Callable[[Params], int], flops: int = 0) -> Any:
    """Return a cost function: x, the indices and the source are read, the whole result is written."""

    def cost(p: Params) -> Cost:
        n, m, nbytes = elements(p), put(p), sizeof(p["dtype"])
        return Cost(flops * m, (n + m) * nbytes + indices(p) * INDEX_BYTES, n * nbytes)

    return cost


def _in_place_cost(put: Callable[[Params], int], indices: Callable[[Params], int], *, adds: bool) -> Any:
    """Return a cost function: only the written elements are touched; if they are added to, they are read too."""

    def cost(p: Params) -> Cost:
        m, nbytes = put(p), sizeof(p["dtype"])
        return Cost(adds * m, (1 + adds) * m * nbytes + indices(p) * INDEX_BYTES, m * nbytes)

    return cost


def _replace_backward(put: Callable[[Params], int], indices: Callable[[Params], int]) -> Any:
    """Return a cost function: x gets the incoming gradient with zeros at the written places, the source gets the
    rest."""

    def cost(p: Params) -> Cost:
        n, m, nbytes = elements(p), put(p), sizeof(p["dtype"])
        return Cost(0, n * nbytes + indices(p) * INDEX_BYTES, (n + m) * nbytes)

    return cost


def _add_backward(put: Callable[[Params], int], indices: Callable[[Params], int]) -> Any:
    """Return a cost function: the source gets the incoming gradient at the places where it was added. The gradient of x
    is the incoming one and not computed."""

    def cost(p: Params) -> Cost:
        moved = put(p) * sizeof(p["dtype"])
        return Cost(0, moved + indices(p) * INDEX_BYTES, moved)

    return cost


def _scatter_reference(p: Params, x: Any, index: Any, src: Any) -> Any:
    out = x.copy()
    np.put_along_axis(out, index, src, axis=p["axis"])
    return out


def _numpy_scatter_inplace(p: Params, x: Any, index: Any, src: Any) -> Launch:
    def launch() -> Any:
        np.put_along_axis(x, index, src, axis=p["axis"])
        return x

    return launch


SCATTER = Operator(
    name="scatter",
    summary="a copy of x with elements along an axis replaced, each by its own index",
    category="indexing",
    params=(SHAPE, LENGTH, FIRST_AXIS, dtype(*MOVED)),
    inputs=_scatter_inputs(unique=True),
    cost=_copy_cost(_written_elements, _written_elements),
    backward_cost=_replace_backward(_written_elements, _written_elements),
    reference=_scatter_reference,
    presets=GATHER_PRESETS,
    rules=(AXIS_EXISTS, FITS),
    gradients=("x", "src"),
    implementations=(
        reference_in_numpy(_scatter_reference),
        torch(lambda p, x, index, src: lambda: x.scatter(p["axis"], index, src), "torch.scatter"),
    ),
    # Axis 1 and length 1 replace one element of each row, as MXNet's operator does.
    aliases=("fill_element_0index",),
)

SCATTER_INPLACE = Operator(
    name="scatter_inplace",
    summary="replaces elements of x along an axis, each by its own index",
    category="indexing",
    params=(SHAPE, LENGTH, FIRST_AXIS, dtype(*MOVED)),
    inputs=_scatter_inputs(unique=True),
    cost=_in_place_cost(_written_elements, _written_elements, adds=False),
    reference=_scatter_reference,
    presets=GATHER_PRESETS,
    rules=(AXIS_EXISTS, FITS),
    mutates=("x",),
    partial=True,
    implementations=(
        numpy(_numpy_scatter_inplace, "numpy.put_along_axis"),
        torch(lambda p, x, index, src: lambda: x.scatter_(p["axis"], index, src), "torch.Tensor.scatter_"),
    ),
    aliases=("scatter_",),
)


def _scatter_add_reference(p: Params, x: Any, index: Any, src: Any) -> Any:
    out = x.copy()
    places = list(np.indices(index.shape, sparse=True))
    places[p["axis"]] = index
    np.add.at(out, tuple(places), src)
    return out


def _several(count: Callable[[Params], int], size: Callable[[Params], int]) -> Tolerance:
    """Tolerance for the average number of terms that are added at one place, plus x itself."""
    return Tolerance(terms=lambda p: 2 + 2 * count(p) // size(p))


SCATTER_ADD = Operator(
    name="scatter_add",
    summary="a copy of x with elements added along an axis, each at its own index",
    category="indexing",
    params=(SHAPE, LENGTH, FIRST_AXIS, dtype(*FLOATS)),
    inputs=_scatter_inputs(unique=False),
    cost=_copy_cost(_written_elements, _written_elements, flops=1),
    backward_cost=_add_backward(_written_elements, _written_elements),
    reference=_scatter_add_reference,
    tolerance=_several(_written_elements, elements),
    presets=GATHER_PRESETS,
    rules=(AXIS_EXISTS,),
    gradients=("src",),
    implementations=(
        formula(_scatter_add_reference),
        torch(lambda p, x, index, src: lambda: x.scatter_add(p["axis"], index, src), "torch.scatter_add"),
    ),
)


def _row_shape(p: Params) -> tuple[int, ...]:
    return index_shape({**p, "length": p["indices"]})


def _written_rows(p: Params) -> int:
    return prod(_row_shape(p))


def _row_indices(p: Params) -> int:
    return int(p["indices"])


def _row_inputs(p: Params) -> dict[str, TensorSpec]:
    index = TensorSpec((p["indices"],), "int64", 0, length(p))
    return {"x": signed_spec(p), "index": index, "src": _source(p, _row_shape(p))}


def _index_add_reference(p: Params, x: Any, index: Any, src: Any) -> Any:
    return _add_rows(p, x.copy(), index, src)


def _add_rows(p: Params, out: Any, index: Any, src: Any) -> Any:
    np.add.at(np.moveaxis(out, p["axis"], 0), index, np.moveaxis(src, p["axis"], 0))
    return out


INDEX_ADD = Operator(
    name="index_add",
    summary="a copy of x with rows (or columns ...) added, by index",
    category="indexing",
    params=(SHAPE, ROWS, FIRST_AXIS, dtype(*FLOATS)),
    inputs=_row_inputs,
    cost=_copy_cost(_written_rows, _row_indices, flops=1),
    backward_cost=_add_backward(_written_rows, _row_indices),
    reference=_index_add_reference,
    tolerance=_several(_row_indices, length),
    presets=ROWS_PRESETS,
    rules=(AXIS_EXISTS,),
    gradients=("src",),
    implementations=(
        formula(_index_add_reference),
        torch(lambda p, x, index, src: lambda: x.index_add(p["axis"], index, src), "torch.index_add"),
    ),
    aliases=("indexadd",),
)

# Repeated calls make values grow, but they stay finite: in 16 bits the addend soon is below the last digit.
INDEX_ADD_INPLACE = Operator(
    name="index_add_inplace",
    summary="adds rows (or columns ...) to x, by index",
    category="indexing",
    params=(SHAPE, ROWS, FIRST_AXIS, dtype(*FLOATS)),
    inputs=_row_inputs,
    cost=_in_place_cost(_written_rows, _row_indices, adds=True),
    reference=_index_add_reference,
    tolerance=_several(_row_indices, length),
    presets=ROWS_PRESETS,
    rules=(AXIS_EXISTS,),
    mutates=("x",),
    partial=True,
    implementations=(
        numpy(lambda p, x, index, src: lambda: _add_rows(p, x, index, src)),
        torch(lambda p, x, index, src: lambda: x.index_add_(p["axis"], index, src), "torch.Tensor.index_add_"),
    ),
    aliases=("index_add_",),
)


def _unique_row_inputs(p: Params) -> dict[str, TensorSpec]:
    n, m = length(p), p["indices"]
    index = TensorSpec((m,), "int64", 0, n, lambda generator: generator.permutation(n)[:m])
    return {"x": signed_spec(p), "index": index, "src": _source(p, _row_shape(p))}


def _scatter_rows_reference(p: Params, x: Any, index: Any, src: Any) -> Any:
    return _scatter_reference(p, x, broadcast(p, index), src)


def _torch_scatter_rows(p: Params, x: Any, index: Any, src: Any) -> Launch:
    shape, whole = expansion_shapes(p)
    each = index.view(shape).expand(whole)
    return lambda: x.scatter_(p["axis"], each, src)


SCATTER_ROWS_INPLACE = Operator(
    name="scatter_rows_inplace",
    summary="replaces rows (or columns ...) of x: scatter with one index per row, expanded along it with stride 0",
    category="indexing",
    params=(SHAPE, ROWS, FIRST_AXIS, dtype(*MOVED)),
    inputs=_unique_row_inputs,
    cost=_in_place_cost(_written_rows, _row_indices, adds=False),
    reference=_scatter_rows_reference,
    presets=ROWS_PRESETS,
    rules=(AXIS_EXISTS, ROWS_FIT),
    mutates=("x",),
    partial=True,
    implementations=(
        numpy(lambda p, x, index, src: _numpy_scatter_inplace(p, x, broadcast(p, index), src), "numpy.put_along_axis"),
        torch(_torch_scatter_rows, "torch.Tensor.scatter_"),
    ),
)


def _put_inputs(p: Params) -> dict[str, TensorSpec]:
    n, m = p["shape"][0], p["indices"]
    index = TensorSpec((m,), "int64", 0, n, lambda generator: generator.permutation(n)[:m])
    return {"x": signed_spec(p), "index": index, "src": _source(p, (m, *p["shape"][1:]))}


def _first(p: Params) -> int:
    return int(p["indices"] * prod(p["shape"][1:]))


def _index_put(p: Params, x: Any, index: Any, src: Any) -> Any:
    out = x.copy()
    out[index] = src
    return out


INDEX_PUT = Operator(
    name="index_put",
    summary="a copy of x with rows replaced, by index",
    category="indexing",
    params=(SHAPE, ROWS, dtype(*MOVED)),
    inputs=_put_inputs,
    cost=_copy_cost(_first, _row_indices),
    backward_cost=_replace_backward(_first, _row_indices),
    reference=_index_put,
    presets=ROWS_PRESETS,
    rules=(ParamRule("indices", "be at most the number of rows of {shape} (got {indices}): each row is written once",
                lambda p: p["indices"] <= p["shape"][0]),),
    gradients=("x", "src"),
    implementations=(
        reference_in_numpy(_index_put),
        torch(lambda p, x, index, src: lambda: x.index_put((index,), src), "torch.index_put"),
    ),
    aliases=("index_copy",),
)  # fmt: skip


def _fill_inputs(p: Params) -> dict[str, TensorSpec]:
    n, m = length(p), p["indices"]
    return {
        "x": signed_spec(p),
        "index": TensorSpec((m,), "int64", 0, n, lambda generator: generator.permutation(n)[:m]),
    }


def _index_fill_reference(p: Params, x: Any, index: Any) -> Any:
    out = x.copy()
    np.moveaxis(out, p["axis"], 0)[index] = p["value"]
    return out


def _fill_cost(p: Params) -> Cost:
    moved = elements(p) * sizeof(p["dtype"])
    return Cost(0, moved + p["indices"] * INDEX_BYTES, moved)


INDEX_FILL = Operator(
    name="index_fill",
    summary="a copy of x with rows (or columns ...) filled with a value, by index",
    category="indexing",
    params=(SHAPE, ROWS, FIRST_AXIS, real("value", "the value", 1.0), dtype(*FLOATS)),
    inputs=_fill_inputs,
    cost=_fill_cost,
    # x gets the incoming gradient, with zeros at the filled rows.
    backward_cost=_fill_cost,
    reference=_index_fill_reference,
    presets=ROWS_PRESETS,
    rules=(AXIS_EXISTS, ROWS_STAY),
    gradients=("x",),
    implementations=(
        reference_in_numpy(_index_fill_reference),
        torch(lambda p, x, index: lambda: x.index_fill(p["axis"], index, p["value"]), "torch.index_fill"),
    ),
)

OPERATORS = (
    SCATTER, SCATTER_INPLACE, SCATTER_ADD, INDEX_ADD, INDEX_ADD_INPLACE, SCATTER_ROWS_INPLACE, INDEX_PUT, INDEX_FILL,
)  # fmt: skip
