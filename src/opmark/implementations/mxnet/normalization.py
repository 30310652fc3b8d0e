"""Normalization of batches, groups and rows."""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.implementations.mxnet._rows import nd, row
from opmark.schema import Params


def _batch_norm(mx: Any, p: Params, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any) -> Any:
    """MXNet's momentum is the weight of the old statistics, the catalogue's that of the new ones."""
    how = {"eps": p["eps"], "momentum": 1 - p["momentum"], "fix_gamma": False, "use_global_stats": not p["training"]}
    normal = mx.nd.BatchNorm(x, weight, bias, running_mean, running_var, **how)
    if not p["training"]:
        return normal
    if not mx.autograd.is_recording():
        raise Unsupported("MXNet updates the running statistics in the backward pass: training has no forward phase")
    return normal, running_mean, running_var


def _group_norm(mx: Any, p: Params, x: Any, weight: Any, bias: Any) -> Any:
    """Scale by channel afterwards, as MXNet scales by group."""
    ones, zeros = mx.nd.ones((p["groups"],), dtype=x.dtype), mx.nd.zeros((p["groups"],), dtype=x.dtype)
    normal, spread = mx.nd.GroupNorm(x, ones, zeros, num_groups=p["groups"], eps=p["eps"]), (-1,) + (1,) * (x.ndim - 2)
    return mx.nd.broadcast_add(mx.nd.broadcast_mul(normal, weight.reshape(spread)), bias.reshape(spread))


def _rms(mx: Any, p: Params, x: Any, weight: Any) -> Any:
    scale = mx.nd.rsqrt(mx.nd.mean(mx.nd.square(x), axis=-1, keepdims=True) + p["eps"])
    return mx.nd.broadcast_mul(mx.nd.broadcast_mul(x, scale), weight)


def _add_rms_norm(mx: Any, p: Params, x: Any, residual: Any, weight: Any) -> Any:
    total = x + residual
    return _rms(mx, p, total, weight), total


def _head_rms_norm(mx: Any, p: Params, x: Any, weight: Any) -> Any:
    """Normalise `norm_heads` heads; 0 means all from the first one on."""
    heads = p["norm_heads"] or p["heads"] - p["norm_start"]
    return _rms(mx, p, mx.nd.slice_axis(x, axis=1, begin=p["norm_start"], end=p["norm_start"] + heads), weight)


def _weight_norm(mx: Any, p: Params, v: Any, g: Any) -> Any:
    length = mx.nd.sqrt(mx.nd.sum(mx.nd.square(v), axis=tuple(range(1, len(p["shape"]))), keepdims=True))
    return mx.nd.broadcast_mul(v, g / length)


def _add_layer_norm(mx: Any, p: Params, x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    return mx.nd.LayerNorm(x + residual, weight, bias, eps=p["eps"])


IMPLEMENTATIONS = {
    "batch_norm": row(_batch_norm, "mxnet.nd.BatchNorm"),
    "group_norm": row(_group_norm, "mxnet.nd.GroupNorm"),
    "instance_norm": nd("InstanceNorm", "x", "weight", "bias", eps="eps"),
    "layer_norm": nd("LayerNorm", "x", "weight", "bias", eps="eps"),
    "l2_normalize": nd("L2Normalization", "x", mode="mode", eps="eps"),
    "lrn": nd("LRN", "x", nsize="size", alpha="alpha", beta="beta", knorm="k"),
    "rms_norm": row(_rms),
    "add_rms_norm": row(_add_rms_norm),
    "head_rms_norm": row(_head_rms_norm),
    "weight_norm": row(_weight_norm),
    "add_layer_norm": row(_add_layer_norm),
}
