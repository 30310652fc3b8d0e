"""Normalisation with statistics in at least float32, as layer libraries on JAX compute them."""

from __future__ import annotations

from typing import Any

from opmark.implementations.jax._modules import jnp, lax, nn, row, wide
from opmark.schema import Params


def _normal(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """Normalise to zero mean and unit variance, in at least float32."""
    x = wide(x)
    mean, var = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
    return (x - mean) * lax.rsqrt(var + eps)


def layer_norm(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    return nn.standardize(wide(x), axis=-1, epsilon=p["eps"]).astype(x.dtype) * weight + bias


def rms_norm(p: Params, x: Any, weight: Any) -> Any:
    square = jnp.mean(jnp.square(wide(x)), axis=-1, keepdims=True)
    return (wide(x) * lax.rsqrt(square + p["eps"])).astype(x.dtype) * weight


def _per_channel(vector: Any, x: Any) -> Any:
    """Reshape one value per channel so that it broadcasts over x."""
    return vector.reshape(-1, *[1] * (x.ndim - 2))


def _group_norm(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    groups = p.get("groups", x.shape[1])
    rows = x.reshape(x.shape[0], groups, -1)
    normal = _normal(rows, (-1,), p["eps"]).reshape(x.shape).astype(x.dtype)
    return normal * _per_channel(weight, x) + _per_channel(bias, x)


def _batch_norm(p: Params, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any) -> Any:
    """In training, return the updated running statistics too, as new arrays."""
    mean, var = wide(running_mean), wide(running_var)
    if p["training"]:
        others = (0, *range(2, x.ndim))
        mean, var = jnp.mean(wide(x), others), jnp.var(wide(x), others)
    scale = weight * lax.rsqrt(var + p["eps"])
    y = ((wide(x) - _per_channel(mean, x)) * _per_channel(scale, x) + _per_channel(bias, x)).astype(x.dtype)
    if not p["training"]:
        return y
    n, share = x.size // x.shape[1], p["momentum"]
    moved = (1 - share) * running_mean + share * mean, (1 - share) * running_var + share * n / (n - 1) * var
    return y, *(one.astype(x.dtype) for one in moved)


def _l2_normalize(p: Params, x: Any) -> Any:
    axes = {"channel": (1,), "instance": tuple(range(1, x.ndim)), "spatial": tuple(range(2, x.ndim))}[p["mode"]]
    length = jnp.sqrt(jnp.square(wide(x)).sum(axes, keepdims=True))
    return (x / jnp.maximum(length, p["eps"])).astype(x.dtype)


def _lrn(p: Params, x: Any) -> Any:
    """Take a window of `size` channels around each channel; if it is even, one more lies before than after."""
    size, rank = p["size"], x.ndim
    before = size // 2
    padding = [(before, size - 1 - before) if axis == 1 else (0, 0) for axis in range(rank)]
    window = [size if axis == 1 else 1 for axis in range(rank)]
    total = lax.reduce_window(jnp.square(x), 0.0, lax.add, window, (1,) * rank, padding)
    return x / (p["k"] + p["alpha"] / size * total) ** p["beta"]


def _weight_norm(p: Params, v: Any, g: Any) -> Any:
    length = jnp.sqrt(jnp.square(wide(v)).sum(tuple(range(1, v.ndim)), keepdims=True))
    return (v * (g / length)).astype(v.dtype)


def _add_rms_norm(p: Params, x: Any, residual: Any, weight: Any) -> Any:
    added = x + residual
    return rms_norm(p, added, weight), added


def _head_rms_norm(p: Params, x: Any, weight: Any) -> Any:
    heads = p["norm_heads"] or p["heads"] - p["norm_start"]
    return rms_norm(p, x[:, p["norm_start"] : p["norm_start"] + heads], weight)


def _qk_rms_norm(p: Params, packed_qkv: Any, q_weight: Any, k_weight: Any) -> Any:
    dim, q, k = p["qk_head_dim"], p["q_heads"], p["kv_heads"]
    parts = jnp.split(packed_qkv, [q * dim, (q + k) * dim], axis=1)
    apart = [part.reshape(len(part), -1, dim) for part in parts[:2]]
    normal = [rms_norm(p, heads, weight) for heads, weight in zip(apart, (q_weight, k_weight), strict=True)]
    return jnp.concatenate([*(part.reshape(len(part), -1) for part in normal), parts[2]], axis=1)


IMPLEMENTATIONS = {
    "layer_norm": row(layer_norm, "jax.nn.standardize"),
    "rms_norm": row(rms_norm),
    "batch_norm": row(_batch_norm),
    "group_norm": row(_group_norm),
    "instance_norm": row(_group_norm),
    "l2_normalize": row(_l2_normalize),
    "lrn": row(_lrn),
    "weight_norm": row(_weight_norm),
    "add_rms_norm": row(_add_rms_norm),
    "head_rms_norm": row(_head_rms_norm),
    "qk_rms_norm": row(_qk_rms_norm),
    "add_layer_norm": row(lambda p, x, residual, weight, bias: layer_norm(p, x + residual, weight, bias)),
}
