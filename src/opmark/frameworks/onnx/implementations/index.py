"""Reading and writing by index, counting, searching."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.onnx.implementations._graph import GraphBuilder, graph, node
from opmark.plugin import Implementation, Params


def _each(g: GraphBuilder, p: Params, index: str) -> Any:
    """Repeat one index per row along all other axes."""
    shape, axis = list(p["shape"]), p["axis"] % len(p["shape"])
    n = p["indices"]
    column = [n if i == axis else 1 for i in range(len(shape))]
    return g.Expand(g.Reshape(index, column), [*shape[:axis], n, *shape[axis + 1 :]])


def _take_flat(g: GraphBuilder, p: Params, x: str, index: str) -> Any:
    return g.Gather(g.Reshape(x, [-1]), index)


def _pick(g: GraphBuilder, p: Params, x: str, index: str) -> Any:
    found = g.GatherElements(x, g.Unsqueeze(index, [p["axis"]]), axis=p["axis"])
    return found if p["keepdims"] else g.Squeeze(found, [p["axis"]])


def _gather_nd(g: GraphBuilder, p: Params, x: str, index: str) -> Any:
    return g.GatherND(x, g.Transpose(index, perm=[1, 0]))


def _one_hot(g: GraphBuilder, p: Params, index: str) -> Any:
    return g.OneHot(index, g.constant(p["depth"]), g.constant([0, 1]), axis=-1)


def _ravel(g: GraphBuilder, p: Params, index: str) -> Any:
    steps = [[prod(p["shape"][i + 1 :])] for i in range(len(p["shape"]))]
    return g.ReduceSum(g.Mul(index, g.constant(steps)), [0], keepdims=0)


def _unravel(g: GraphBuilder, p: Params, index: str) -> Any:
    steps = [prod(p["shape"][i + 1 :]) for i in range(len(p["shape"]))]
    return tuple(g.Mod(g.Div(index, step), n) for step, n in zip(steps, p["shape"], strict=True))


def _scatter(reduction: str) -> Implementation:
    def draw(g: GraphBuilder, p: Params, x: str, index: str, src: str) -> Any:
        return g.ScatterElements(x, index, src, axis=p["axis"], reduction=reduction)

    return graph(draw, path="onnx.ScatterElements")


def _index_add(g: GraphBuilder, p: Params, x: str, index: str, src: str) -> Any:
    return g.ScatterElements(x, _each(g, p, index), src, axis=p["axis"], reduction="add")


def _index_put(g: GraphBuilder, p: Params, x: str, index: str, src: str) -> Any:
    return g.ScatterND(x, g.Unsqueeze(index, [1]), src)


def _index_fill(g: GraphBuilder, p: Params, x: str, index: str) -> Any:
    each = _each(g, p, index)
    value = g.Expand(g.constant(p["value"], p["dtype"]), g.Shape(each))
    return g.ScatterElements(x, each, value, axis=p["axis"])


def _embedding_bag(
    g: GraphBuilder, p: Params, weight: str, indices: str, offsets: str, per_sample_weights: str = ""
) -> Any:
    """Treat bags of equal length as rows of a matrix, which needs no offsets."""
    if p["lengths"] != "fixed":
        raise Unsupported("ONNX has no node for bags of different lengths; exporters write a loop")
    rows = g.Gather(weight, indices)
    if per_sample_weights:
        rows = g.Mul(rows, g.Unsqueeze(per_sample_weights, [1]))
    kind = {"sum": g.ReduceSum, "mean": g.ReduceMean, "max": g.ReduceMax}[p["mode"]]
    return kind(g.Reshape(rows, [p["bags"], p["pooling"], p["dim"]]), [1], keepdims=0)


def _batched_embedding_bag(g: GraphBuilder, p: Params, weight: str, indices: str, offsets: str) -> Any:
    """Look up rows in all tables joined into one; indices are shifted to their table."""
    if p["lengths"] != "fixed":
        raise Unsupported("ONNX has no node for bags of different lengths; exporters write a loop")
    tables = p["tables"]
    base = g.constant([[i * p["rows"]] for i in range(tables)])
    places = g.Add(g.Reshape(indices, [tables, -1]), base)
    rows = g.Gather(g.Reshape(weight, [-1, p["dim"]]), places)
    kind = g.ReduceSum if p["mode"] == "sum" else g.ReduceMean
    return kind(g.Reshape(rows, [tables, p["bags"], p["pooling"], p["dim"]]), [2], keepdims=0)


def _unique(g: GraphBuilder, p: Params, x: str) -> Any:
    values, _, inverse, counts = g.Unique(x, outputs=4, sorted=1)
    more = [g.Reshape(inverse, p["shape"])] if p["inverse"] else []
    found = (values, *more, *([counts] if p["counts"] else []))
    return found if len(found) > 1 else values


def _nonzero(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.Transpose(g.NonZero(x), perm=[1, 0])


def _count(g: GraphBuilder, places: str, bins: int, n: int, dtype: str) -> Any:
    zeros, ones = (g.Expand(g.constant(value, dtype), [size]) for value, size in ((0, bins), (1, n)))
    return g.ScatterElements(zeros, places, ones, axis=0, reduction="add")


def _bincount(g: GraphBuilder, p: Params, x: str) -> Any:
    return _count(g, x, p["bins"], p["values"], "int64")


def _histogram(g: GraphBuilder, p: Params, x: str) -> Any:
    places = g.Floor(g.Mul(g.Add(g.Reshape(x, [-1]), 1.0), p["bins"] / 2))
    inside = g.Clip(g.Cast(places, to="int64"), 0, p["bins"] - 1)
    return _count(g, inside, p["bins"], prod(p["shape"]), p["dtype"])


def _isin(g: GraphBuilder, p: Params, x: str, candidates: str) -> Any:
    """Compare each element with each candidate, as exporters write it."""
    alike = g.Cast(g.Equal(g.Unsqueeze(x, [-1]), candidates), to="int32")
    return g.Cast(g.ReduceMax(alike, [-1], keepdims=0), to="bool")


def _masked_select(g: GraphBuilder, p: Params, x: str, mask: str) -> Any:
    return g.Compress(x, g.Reshape(mask, [-1]))


IMPLEMENTATIONS = {
    "embedding": node("Gather", "weight", "indices"),
    "hash_table": node("Gather", "table", "indices"),
    "index_select": node("Gather", "x", "index", axis="axis"),
    "take": node("Gather", "x", "index", axis="axis"),
    "take_flat": graph(_take_flat),
    "gather": node("GatherElements", "x", "index", axis="axis"),
    "take_along_axis": node("GatherElements", "x", "index", axis="axis"),
    "gather_rows": graph(lambda g, p, x, index: g.GatherElements(x, _each(g, p, index), axis=p["axis"])),
    "pick": graph(_pick),
    "gather_nd": graph(_gather_nd),
    "one_hot": graph(_one_hot, path="onnx.OneHot"),
    "ravel_multi_index": graph(_ravel),
    "unravel_index": graph(_unravel),
    "scatter": _scatter("none"),
    "scatter_add": _scatter("add"),
    "index_add": graph(_index_add),
    "index_put": graph(_index_put, path="onnx.ScatterND"),
    "index_fill": graph(_index_fill),
    "masked_fill": graph(lambda g, p, x, mask: g.Where(mask, p["value"], x), path="onnx.Where"),
    "masked_select": graph(_masked_select, path="onnx.Compress"),
    "embedding_bag": graph(_embedding_bag),
    "batched_embedding_bag": graph(_batched_embedding_bag),
    "unique": graph(_unique, path="onnx.Unique"),
    "nonzero": graph(_nonzero),
    "bincount": graph(_bincount),
    "histogram": graph(_histogram),
    "isin": graph(_isin),
}
