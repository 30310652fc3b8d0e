"""Normalisation to zero mean and unit variance, or to unit length."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.errors import Unsupported
from opmark.implementations.onnx._graph import GraphBuilder, graph
from opmark.schema import Params


def rms(g: GraphBuilder, x: str, eps: float) -> Any:
    """Write rms_norm as exporters of language models do, which engines can fuse."""
    mean_square = g.ReduceMean(g.Pow(x, 2.0), [-1], keepdims=1)
    return g.Div(x, g.Sqrt(g.Add(mean_square, eps)))


def layer_norm(g: GraphBuilder, p: Params, x: str, weight: str, bias: str) -> Any:
    return g.LayerNormalization(x, weight, bias, axis=-1, epsilon=p["eps"])


def _batch_norm(
    g: GraphBuilder, p: Params, x: str, weight: str, bias: str, running_mean: str, running_var: str
) -> Any:  # fmt: skip
    if not p["training"]:
        return g.BatchNormalization(x, weight, bias, running_mean, running_var, epsilon=p["eps"])
    return _batch_norm_training(g, p, x, weight, bias, running_mean, running_var)


def _batch_norm_training(
    g: GraphBuilder, p: Params, x: str, weight: str, bias: str, running_mean: str, running_var: str
) -> Any:  # fmt: skip
    """Write it out: ONNX's node updates the running variance by the population variance, others by the sample one."""
    rank, momentum = len(p["shape"]), p["momentum"]
    axes, column = [0, *range(2, rank)], [1, -1, *[1] * (rank - 2)]
    n = prod(p["shape"]) // p["shape"][1]
    mean = g.ReduceMean(x, axes, keepdims=1)
    centred = g.Sub(x, mean)
    var = g.ReduceMean(g.Mul(centred, centred), axes, keepdims=1)
    normal = g.Div(centred, g.Sqrt(g.Add(var, p["eps"])))
    y = g.Add(g.Mul(normal, g.Reshape(weight, column)), g.Reshape(bias, column))
    new_mean = g.Add(g.Mul(running_mean, 1 - momentum), g.Mul(g.Squeeze(mean, axes), momentum))
    new_var = g.Add(g.Mul(running_var, 1 - momentum), g.Mul(g.Squeeze(var, axes), momentum * n / (n - 1)))
    return y, new_mean, new_var


def _group_norm(g: GraphBuilder, p: Params, x: str, weight: str, bias: str) -> Any:
    """Normalise as exporters write it, with each group as a channel."""
    groups, column = p["groups"], [1, -1, *[1] * (len(p["shape"]) - 2)]
    one, zero = (g.constant([value] * groups, p["dtype"]) for value in (1.0, 0.0))
    rows = g.InstanceNormalization(g.Reshape(x, [0, groups, -1]), one, zero, epsilon=p["eps"])
    return g.Add(g.Mul(g.Reshape(rows, p["shape"]), g.Reshape(weight, column)), g.Reshape(bias, column))


def _instance_norm(g: GraphBuilder, p: Params, x: str, weight: str, bias: str) -> Any:
    return g.InstanceNormalization(x, weight, bias, epsilon=p["eps"])


def _l2_normalize(g: GraphBuilder, p: Params, x: str) -> Any:
    rank = len(p["shape"])
    axes = {"channel": [1], "instance": list(range(1, rank)), "spatial": list(range(2, rank))}[p["mode"]]
    length = g.ReduceL2(x, axes, keepdims=1)
    return g.Div(x, g.Max(length, p["eps"]))


def _lrn(g: GraphBuilder, p: Params, x: str) -> Any:
    """Refuse an even size: ONNX then takes one more channel after, others one more before."""
    if p["size"] % 2 == 0:
        raise Unsupported(f"ONNX's LRN agrees only for an odd number of channels (got size={p['size']})")
    return g.LRN(x, size=p["size"], alpha=p["alpha"], beta=p["beta"], bias=p["k"])


def _weight_norm(g: GraphBuilder, p: Params, v: str, g_: str) -> Any:
    length = g.ReduceL2(v, list(range(1, len(p["shape"]))), keepdims=1)
    return g.Mul(v, g.Div(g_, length))


def _add_rms_norm(g: GraphBuilder, p: Params, x: str, residual: str, weight: str) -> Any:
    added = g.Add(x, residual)
    return g.Mul(rms(g, added, p["eps"]), weight), added


def _head_rms_norm(g: GraphBuilder, p: Params, x: str, weight: str) -> Any:
    start = p["norm_start"]
    end = start + (p["norm_heads"] or p["heads"] - start)
    return g.Mul(rms(g, g.Slice(x, [start], [end], [1]), p["eps"]), weight)


def _add_layer_norm(g: GraphBuilder, p: Params, x: str, residual: str, weight: str, bias: str) -> Any:
    return layer_norm(g, p, g.Add(x, residual), weight, bias)


IMPLEMENTATIONS = {
    "batch_norm": graph(_batch_norm),
    "group_norm": graph(_group_norm),
    "instance_norm": graph(_instance_norm, path="onnx.InstanceNormalization"),
    "layer_norm": graph(layer_norm, path="onnx.LayerNormalization"),
    "rms_norm": graph(lambda g, p, x, weight: g.Mul(rms(g, x, p["eps"]), weight)),
    "l2_normalize": graph(_l2_normalize),
    "lrn": graph(_lrn, path="onnx.LRN"),
    "weight_norm": graph(lambda _g, p, **names: _weight_norm(_g, p, names["v"], names["g"])),
    "add_rms_norm": graph(_add_rms_norm),
    "head_rms_norm": graph(_head_rms_norm),
    "add_layer_norm": graph(_add_layer_norm),
}
