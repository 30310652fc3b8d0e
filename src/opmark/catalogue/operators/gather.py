"""Operators that pick elements or rows by index: embedding, index_select, gather, gather_rows, take, pick.

Each row is read at most once, however often it is looked up. Backwards, a dense gradient is written in full, to which
the gradients of the picked elements are added.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import (
    AXIS_EXISTS,
    INDEX_BYTES,
    KEEPDIMS,
    SHAPE,
    elements,
    length,
    reference_in_numpy,
    rows,
    signed_spec,
)
from opmark.catalogue.operators._builders import calls, torch
from opmark.plugin import Implementation, Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, integer, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

MOVED = (*FLOATS, "int64", "int32", "int8")
FIRST_AXIS = integer("axis", "axis that is indexed; negative counts from the last", 0)


def _lookup(p: Params, picked: int, indices: int, table: int) -> Cost:
    nbytes = sizeof(p["dtype"])
    return Cost(0, min(picked, table) * nbytes + indices * INDEX_BYTES, picked * nbytes)


def _lookup_backward(p: Params, picked: int, indices: int, table: int) -> Cost:
    nbytes = sizeof(p["dtype"])
    return Cost(picked, picked * nbytes + indices * INDEX_BYTES, table * nbytes)


def lookup(name: str, summary: str, counts: Any, **more: Any) -> Operator:
    """Make a lookup. `counts(p)` returns the elements picked, the indices read, and the elements of the table."""
    return Operator(
        name=name,
        summary=summary,
        category="indexing",
        cost=lambda p: _lookup(p, *counts(p)),
        backward_cost=lambda p: _lookup_backward(p, *counts(p)),
        # Exact forwards; backwards, one gradient is added up for each time that an element is picked.
        tolerance=Tolerance(terms=lambda p: 1 + counts(p)[0] // counts(p)[2]),
        partial=True,
        **more,
    )


EMBEDDING = lookup(
    "embedding",
    "rows of a table, by index",
    lambda p: (p["indices"] * p["dim"], p["indices"], p["rows"] * p["dim"]),
    params=(
        size("rows", "rows of the table"),
        size("dim", "elements of a row"),
        size("indices", "number of rows that are looked up"),
        dtype(*FLOATS),
    ),
    inputs=lambda p: {
        "weight": TensorSpec((p["rows"], p["dim"]), p["dtype"]),
        "indices": TensorSpec((p["indices"],), "int64", 0, p["rows"]),
    },
    reference=lambda p, weight, indices: weight[indices],
    presets={
        "small": {"rows": 1000, "dim": 64, "indices": 256},
        "typical": {"rows": 50000, "dim": 512, "indices": 4096},
        "large": {"rows": 200000, "dim": 1024, "indices": 32768},
    },
    gradients=("weight",),
    implementations=(
        reference_in_numpy(lambda p, weight, indices: weight[indices]),
        calls("torch.nn.functional.embedding", "indices", "weight"),
    ),
    aliases=("Embedding",),
)

HASH_TABLE = lookup(
    "hash_table",
    "rows of a table by a matrix of indices: several lookups for each element of a batch",
    lambda p: (
        p["batch"] * p["lookups"] * p["dim"],
        p["batch"] * p["lookups"],
        p["entries"] * p["dim"],
    ),
    params=(
        size("entries", "rows of the table"),
        size("dim", "elements of a row"),
        size("batch", "elements of the batch"),
        size("lookups", "rows that are looked up per element of the batch"),
        dtype(*FLOATS),
    ),
    inputs=lambda p: {
        "table": TensorSpec((p["entries"], p["dim"]), p["dtype"]),
        "indices": TensorSpec((p["batch"], p["lookups"]), "int64", 0, p["entries"]),
    },
    reference=lambda p, table, indices: table[indices],
    presets={
        "small": {"entries": 1000, "dim": 64, "batch": 16, "lookups": 16},
        "typical": {"entries": 50000, "dim": 64, "batch": 256, "lookups": 64},
        "large": {"entries": 1_000_000, "dim": 128, "batch": 2048, "lookups": 128},
    },
    gradients=("table",),
    implementations=(
        reference_in_numpy(lambda p, table, indices: table[indices]),
        calls("torch.nn.functional.embedding", "indices", "table"),
    ),
    aliases=("hashtable",),
)

ROWS_PRESETS = {
    "small": {"shape": [256, 256], "indices": 64},
    "typical": {"shape": [16384, 512], "indices": 2048},
    "large": {"shape": [131072, 1024], "indices": 32768},
}


def _count_rows(p: Params) -> tuple[int, int, int]:
    return p["indices"] * rows(p), p["indices"], elements(p)


def _row_inputs(p: Params) -> dict[str, TensorSpec]:
    return {"x": signed_spec(p), "index": TensorSpec((p["indices"],), "int64", 0, length(p))}


INDEX_SELECT = lookup(
    "index_select",
    "rows (or columns ...) of a tensor, by index",
    _count_rows,
    params=(SHAPE, size("indices", "number of rows that are picked"), FIRST_AXIS, dtype(*MOVED)),
    inputs=_row_inputs,
    reference=lambda p, x, index: np.take(x, index, axis=p["axis"]),
    presets=ROWS_PRESETS,
    rules=(AXIS_EXISTS,),
    gradients=("x",),
    implementations=(
        reference_in_numpy(lambda p, x, index: np.take(x, index, axis=p["axis"])),
        torch(lambda p, x, index: lambda: x.index_select(p["axis"], index), "torch.index_select"),
    ),
)


def _take_inputs(p: Params) -> dict[str, TensorSpec]:
    return {"x": signed_spec(p), "index": TensorSpec(tuple(p["index_shape"]), "int64", 0, length(p))}


def _torch_take(p: Params, x: Any, index: Any) -> Launch:
    places = (slice(None),) * (p["axis"] % x.dim()) + (index,)
    return lambda: x[places]


TAKE = lookup(
    "take",
    "rows (or columns ...) of a tensor by indices of any shape, as numpy.take does",
    lambda p: (prod(p["index_shape"]) * rows(p), prod(p["index_shape"]), elements(p)),
    params=(SHAPE, shape("index_shape", "shape of the indices"), FIRST_AXIS, dtype(*MOVED)),
    inputs=_take_inputs,
    reference=lambda p, x, index: np.take(x, index, axis=p["axis"]),
    presets={
        "small": {"shape": [256, 256], "index_shape": [8, 8]},
        "typical": {"shape": [16384, 512], "index_shape": [32, 64]},
        "large": {"shape": [131072, 1024], "index_shape": [64, 512]},
    },
    rules=(AXIS_EXISTS,),
    gradients=("x",),
    implementations=(
        reference_in_numpy(lambda p, x, index: np.take(x, index, axis=p["axis"])),
        torch(_torch_take, "torch.Tensor.__getitem__"),
    ),
)

TAKE_FLAT = lookup(
    "take_flat",
    "elements of a tensor by flat indices, as torch.take does",
    lambda p: (p["indices"], p["indices"], elements(p)),
    params=(SHAPE, size("indices", "number of elements that are picked"), dtype(*MOVED)),
    inputs=lambda p: {"x": signed_spec(p), "index": TensorSpec((p["indices"],), "int64", 0, elements(p))},
    reference=lambda p, x, index: np.take(x, index),
    presets={
        "small": {"shape": [256, 256], "indices": 4096},
        "typical": {"shape": [4096, 1024], "indices": 262_144},
        "large": {"shape": [16384, 8192], "indices": 16_777_216},
    },
    gradients=("x",),
    implementations=(
        reference_in_numpy(lambda p, x, index: np.take(x, index)),
        calls("torch.take", "x", "index"),
    ),
)


def index_shape(p: Params) -> tuple[int, ...]:
    """Return the shape of x with `length` elements along the axis."""
    axis = p["axis"] % len(p["shape"])
    return tuple(p["length"] if i == axis else n for i, n in enumerate(p["shape"]))


def _gather_inputs(p: Params) -> dict[str, TensorSpec]:
    return {"x": signed_spec(p), "index": TensorSpec(index_shape(p), "int64", 0, length(p))}


GATHER_PRESETS = {
    "small": {"shape": [256, 256], "length": 64},
    "typical": {"shape": [4096, 512], "length": 1024},
    "large": {"shape": [65536, 1024], "length": 16384},
}


def _gather(name: str, summary: str, implementation: Implementation, *aliases: str) -> Operator:
    return lookup(
        name,
        summary,
        lambda p: (prod(index_shape(p)), prod(index_shape(p)), elements(p)),
        params=(SHAPE, size("length", "length of the index along the axis"), FIRST_AXIS, dtype(*MOVED)),
        inputs=_gather_inputs,
        reference=lambda p, x, index: np.take_along_axis(x, index, axis=p["axis"]),
        presets=GATHER_PRESETS,
        rules=(AXIS_EXISTS,),
        gradients=("x",),
        implementations=(
            reference_in_numpy(lambda p, x, index: np.take_along_axis(x, index, axis=p["axis"])),
            implementation,
        ),
        aliases=aliases,
    )


GATHER = _gather(
    "gather",
    "elements along an axis, each by its own index",
    torch(lambda p, x, index: lambda: x.gather(p["axis"], index), "torch.gather"),
)
TAKE_ALONG_AXIS = _gather(
    "take_along_axis",
    "elements along an axis, each by its own index; the index may be broadcast",
    calls("torch.take_along_dim", "x", "index", dim="axis"),
    "take_along_dim",
)


def expansion_shapes(p: Params) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes that expand one index per row to one per element without a copy: before and after."""
    axis = p["axis"] % len(p["shape"])
    rank = len(p["shape"])
    return tuple(p["indices"] if i == axis else 1 for i in range(rank)), index_shape({**p, "length": p["indices"]})


def broadcast(p: Params, index: Any) -> Any:
    shape, whole = expansion_shapes(p)
    return np.broadcast_to(index.reshape(shape), whole)


def _gather_rows(p: Params, x: Any, index: Any) -> Any:
    return np.take_along_axis(x, broadcast(p, index), axis=p["axis"])


def _torch_gather_rows(p: Params, x: Any, index: Any) -> Launch:
    shape, whole = expansion_shapes(p)
    each = index.view(shape).expand(whole)
    return lambda: x.gather(p["axis"], each)


GATHER_ROWS = lookup(
    "gather_rows",
    "rows (or columns ...) of a tensor: gather with one index per row, expanded along it with stride 0",
    _count_rows,
    params=(SHAPE, size("indices", "number of rows that are picked"), FIRST_AXIS, dtype(*MOVED)),
    inputs=_row_inputs,
    reference=_gather_rows,
    presets=ROWS_PRESETS,
    rules=(AXIS_EXISTS,),
    gradients=("x",),
    implementations=(reference_in_numpy(_gather_rows), torch(_torch_gather_rows, "torch.gather")),
)


def _pick_inputs(p: Params) -> dict[str, TensorSpec]:
    axis = p["axis"] % len(p["shape"])
    kept = tuple(n for i, n in enumerate(p["shape"]) if i != axis)
    return {"x": signed_spec(p), "index": TensorSpec(kept, "int64", 0, length(p))}


def _pick(p: Params, x: Any, index: Any) -> Any:
    found = np.take_along_axis(x, np.expand_dims(index, p["axis"]), axis=p["axis"])
    return found if p["keepdims"] else np.squeeze(found, p["axis"])


def _torch_pick(p: Params, x: Any, index: Any) -> Launch:
    axis = p["axis"]
    if p["keepdims"]:
        return lambda: x.gather(axis, index.unsqueeze(axis))
    return lambda: x.gather(axis, index.unsqueeze(axis)).squeeze(axis)


PICK = lookup(
    "pick",
    "one element of each row, by index",
    lambda p: (rows(p), rows(p), elements(p)),
    params=(SHAPE, integer("axis", "axis that one element is picked from", -1), KEEPDIMS, dtype(*MOVED)),
    inputs=_pick_inputs,
    reference=_pick,
    presets={
        "small": {"shape": [256, 256]},
        "typical": {"shape": [16384, 512]},
        "large": {"shape": [262_144, 1024]},
    },
    rules=(AXIS_EXISTS, ParamRule("shape", "have at least 2 axes (got {shape})", lambda p: len(p["shape"]) > 1)),
    gradients=("x",),
    implementations=(reference_in_numpy(_pick), torch(_torch_pick, "torch.gather")),
    aliases=("choose_element_0index", "batch_take"),
)

OPERATORS = (EMBEDDING, HASH_TABLE, INDEX_SELECT, TAKE, TAKE_FLAT, GATHER, GATHER_ROWS, TAKE_ALONG_AXIS, PICK)
