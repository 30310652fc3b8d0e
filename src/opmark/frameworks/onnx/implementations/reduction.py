"""Operators along an axis: reductions, extrema, softmax, cumulative sums, sorting."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.frameworks.onnx.implementations._graph import GraphBuilder, graph, node
from opmark.plugin import Implementation, Params
from opmark.schema.tensor import is_float


def _reduction(kind: str) -> Implementation:
    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        return getattr(g, kind)(x, [p["axis"]], keepdims=int(p["keepdims"]))

    return graph(draw, path=f"onnx.{kind}")


def _sum(g: GraphBuilder, p: Params, x: str) -> Any:
    """Sum integers in 64 bits."""
    wide = x if is_float(p["dtype"]) or p["dtype"] == "int64" else g.Cast(x, to="int64")
    return g.ReduceSum(wide, [p["axis"]], keepdims=int(p["keepdims"]))


def _nan_reduction(kind: str, neutral: float) -> Implementation:
    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        return getattr(g, kind)(g.Where(g.IsNaN(x), neutral, x), [p["axis"]], keepdims=int(p["keepdims"]))

    return graph(draw)


def _nanmean(g: GraphBuilder, p: Params, x: str) -> Any:
    missing, axes, keep = g.IsNaN(x), [p["axis"]], int(p["keepdims"])
    there = g.ReduceSum(g.Cast(g.Not(missing), to=p["dtype"]), axes, keepdims=keep)
    return g.Div(g.ReduceSum(g.Where(missing, 0.0, x), axes, keepdims=keep), there)


def _var(g: GraphBuilder, p: Params, x: str) -> Any:
    axes, n = [p["axis"]], p["shape"][p["axis"]]
    centred = g.Sub(x, g.ReduceMean(x, axes, keepdims=1))
    squares = g.ReduceSum(g.Mul(centred, centred), axes, keepdims=int(p["keepdims"]))
    return g.Div(squares, float(n - p["correction"]))


def _norm(g: GraphBuilder, p: Params, x: str) -> Any:
    kind = g.ReduceL1 if p["ord"] == 1 else g.ReduceL2
    return kind(x, [p["axis"]], keepdims=int(p["keepdims"]))


def _truth_reduction(any_or_all: str) -> Implementation:
    """Reduce numbers by maximum or minimum: ONNX reduces truth values only from opset 20, and few engines do."""

    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        truth = g.Cast(x if p["dtype"] == "bool" else g.Cast(x, to="bool"), to="int32")
        kind = g.ReduceMax if any_or_all == "any" else g.ReduceMin
        return g.Cast(kind(truth, [p["axis"]], keepdims=int(p["keepdims"])), to="bool")

    return graph(draw)


def _count_nonzero(g: GraphBuilder, p: Params, x: str) -> Any:
    truth = x if p["dtype"] == "bool" else g.Cast(x, to="bool")
    return g.ReduceSum(g.Cast(truth, to="int64"), [p["axis"]], keepdims=0)


def _all_finite(g: GraphBuilder, p: Params, **tensors: str) -> Any:
    found = []
    for x in tensors.values():
        bad = g.Cast(g.Or(g.IsInf(x), g.IsNaN(x)), to="int32")
        found.append(g.ReduceMax(bad, keepdims=0))
    return g.Not(g.Cast(g.Max(*found) if len(found) > 1 else found[0], to="bool"))


def _multi_sum_sq(g: GraphBuilder, p: Params, **tensors: str) -> Any:
    wide = "float64" if p["dtype"] == "float64" else "float32"
    single = [x if p["dtype"] == wide else g.Cast(x, to=wide) for x in tensors.values()]
    return g.Concat(*(g.Reshape(g.ReduceSumSquare(x, keepdims=0), [1]) for x in single), axis=0)


def _extremum(kind: str, where: str) -> Implementation:
    """Make value and index by two nodes, as exporters write it."""

    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        keep = int(p["keepdims"])
        place = getattr(g, where)(x, axis=p["axis"], keepdims=keep)
        return getattr(g, kind)(x, [p["axis"]], keepdims=keep), place

    return graph(draw)


def _index_of(kind: str) -> Implementation:
    draw = lambda g, p, x: getattr(g, kind)(x, axis=p["axis"], keepdims=int(p["keepdims"]))  # noqa: E731
    return graph(draw, path=f"onnx.{kind}")


def _softmin(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.Softmax(g.Neg(x), axis=p["axis"])


def _masked_softmax(g: GraphBuilder, p: Params, x: str, mask: str) -> Any:
    return g.Softmax(g.Where(mask, x, float("-inf")), axis=p["axis"])


def _diff(g: GraphBuilder, p: Params, x: str) -> Any:
    axis, n = p["axis"], p["shape"][p["axis"]]
    return g.Sub(g.Slice(x, [1], [n], [axis]), g.Slice(x, [0], [n - 1], [axis]))


def _logcumsumexp(g: GraphBuilder, p: Params, x: str) -> Any:
    return g.Log(g.CumSum(g.Exp(x), g.constant(p["axis"])))


def _top(g: GraphBuilder, x: str, k: int, axis: int, *, largest: bool) -> Any:
    return g.TopK(x, [k], outputs=2, axis=axis, largest=int(largest), sorted=1)


def _sort(g: GraphBuilder, p: Params, x: str) -> Any:
    """Sort as exporters write it, by TopK of all elements."""
    return _top(g, x, p["shape"][p["axis"]], p["axis"], largest=p["descending"])


def _smallest(k: Any) -> Implementation:
    """Find the k-th smallest as the last of the k smallest."""

    def draw(g: GraphBuilder, p: Params, x: str) -> Any:
        count, axis = k(p), p["axis"]
        last = [g.Slice(y, [count - 1], [count], [axis]) for y in _top(g, x, count, axis, largest=False)]
        return tuple(last if p["keepdims"] else (g.Squeeze(y, [axis]) for y in last))

    return graph(draw)


def _moments(g: GraphBuilder, p: Params, x: str) -> Any:
    axes = list(range(-(p["axes"] or len(p["shape"])), 0))
    n = prod(p["shape"][axis] for axis in axes)
    mean = g.ReduceMean(x, axes, keepdims=1)
    centred = g.Sub(x, mean)
    return g.Div(g.ReduceSum(g.Mul(centred, centred), axes, keepdims=0), float(n)), g.Squeeze(mean, axes)


IMPLEMENTATIONS = {
    "reduce_sum": graph(_sum, path="onnx.ReduceSum"),
    "reduce_mean": _reduction("ReduceMean"),
    "prod": _reduction("ReduceProd"),
    "logsumexp": _reduction("ReduceLogSumExp"),
    "amax": _reduction("ReduceMax"),
    "amin": _reduction("ReduceMin"),
    "nansum": _nan_reduction("ReduceSum", 0.0),
    "nanprod": _nan_reduction("ReduceProd", 1.0),
    "nanmean": graph(_nanmean),
    "var": graph(_var),
    "std": graph(lambda g, p, x: g.Sqrt(_var(g, p, x))),
    "moments": graph(_moments),
    "norm": graph(_norm),
    "any": _truth_reduction("any"),
    "all": _truth_reduction("all"),
    "count_nonzero": graph(_count_nonzero),
    "all_finite": graph(_all_finite),
    "multi_all_finite": graph(_all_finite),
    "multi_sum_sq": graph(_multi_sum_sq),
    "reduce_max": _extremum("ReduceMax", "ArgMax"),
    "reduce_min": _extremum("ReduceMin", "ArgMin"),
    "argmax": _index_of("ArgMax"),
    "argmin": _index_of("ArgMin"),
    "softmax": node("Softmax", "x", axis="axis"),
    "log_softmax": node("LogSoftmax", "x", axis="axis"),
    "softmin": graph(_softmin),
    "masked_softmax": graph(_masked_softmax),
    "cumsum": graph(lambda g, p, x: g.CumSum(x, g.constant(p["axis"])), path="onnx.CumSum"),
    "logcumsumexp": graph(_logcumsumexp),
    "diff": graph(_diff),
    "sort": graph(_sort, path="onnx.TopK"),
    "argsort": graph(lambda g, p, x: _sort(g, p, x)[1], path="onnx.TopK"),
    "topk": graph(lambda g, p, x: _top(g, x, p["k"], -1, largest=p["largest"]), path="onnx.TopK"),
    "kthvalue": _smallest(lambda p: p["k"]),
    "median": _smallest(lambda p: (p["shape"][p["axis"]] + 1) // 2),
}
