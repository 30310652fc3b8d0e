"""Chains that compilers fuse, attention, rotary embedding, embedding bags."""

from __future__ import annotations

from itertools import chain
from typing import Any

from opmark.errors import Unsupported
from opmark.implementations.jax._modules import jnp, nn, row
from opmark.implementations.jax.convolution import conv
from opmark.schema import Params


def _attention(p: Params, q: Any, k: Any, v: Any) -> Any:
    """Call JAX's own attention, which wants heads after positions and computes the softmax in float32."""
    if p["dtype"] == "float64":
        raise Unsupported("jax.nn.dot_product_attention computes in float32 at most")
    turned = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    return jnp.swapaxes(nn.dot_product_attention(*turned, is_causal=p["causal"]), 1, 2)


def _attention_chain(p: Params, q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(q @ k.mT * p["head_dim"] ** -0.5, axis=-1) @ v


def _rotary(p: Params, packed_qkv: Any, cos: Any, sin: Any) -> Any:
    start = p["rope_offset"]
    dim = p["rope_dim"] or p["head_dim"] - start
    news = p["q_lens"] or [p["q_len"]] * p["batch"]
    olds = p["cache_lens"] or [p["cache_len"]] * p["batch"]
    places = jnp.array([*chain(*(range(old, old + new) for new, old in zip(news, olds, strict=True)))])
    kept = packed_qkv[:, : p["q_heads"] + p["kv_heads"]]
    x = kept[..., start : start + dim]
    other = jnp.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], axis=-1)
    turned = x * cos[places][:, None] + other * sin[places][:, None]
    return jnp.concatenate([kept[..., :start], turned, kept[..., start + dim :]], axis=-1)


def _linear_gelu(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    return nn.gelu(x @ weight.T + bias, approximate=p["approximate"] == "tanh")


def _conv_bn(p: Params, x: Any, weight: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    scale, shift, shape = gamma / jnp.sqrt(var + p["eps"]), beta, (-1, 1, 1)
    return (conv(p, x, weight) - mean.reshape(shape)) * scale.reshape(shape) + shift.reshape(shape)


def _conv_relu(p: Params, x: Any, weight: Any, bias: Any) -> Any:
    return nn.relu(conv(p, x, weight) + bias.reshape(-1, 1, 1))


def _bags(offsets: Any, rows: int) -> Any:
    """Return the bag of each lookup."""
    return jnp.searchsorted(offsets, jnp.arange(rows), side="right") - 1


def _pool(p: Params, rows: Any, offsets: Any) -> Any:
    from jax.ops import segment_max, segment_sum

    bags, count = _bags(offsets, len(rows)), len(offsets)
    if p["mode"] == "max":
        return segment_max(rows, bags, count, indices_are_sorted=True)
    total = segment_sum(rows, bags, count, indices_are_sorted=True)
    if p["mode"] == "sum":
        return total
    return total / jnp.diff(offsets, append=len(rows))[:, None].astype(rows.dtype)


def _embedding_bag(p: Params, weight: Any, indices: Any, offsets: Any, per_sample_weights: Any = None) -> Any:
    rows = weight[indices]
    return _pool(p, rows if per_sample_weights is None else rows * per_sample_weights[:, None], offsets)


def _batched_bag(p: Params, weight: Any, indices: Any, offsets: Any) -> Any:
    """Look up rows in all tables joined into one."""
    table = _bags(offsets, len(indices)) // p["bags"]
    merged = weight.reshape(-1, p["dim"])[indices + p["rows"] * table]
    return _pool(p, merged, offsets).reshape(p["tables"], p["bags"], p["dim"])


IMPLEMENTATIONS = {
    "scaled_dot_product_attention": row(_attention, "jax.nn.dot_product_attention"),
    "matmul_softmax_matmul": row(_attention_chain),
    "rotary_embedding": row(_rotary),
    "linear_relu": row(lambda p, x, weight, bias: nn.relu(x @ weight.T + bias)),
    "linear_gelu": row(_linear_gelu),
    "linear_add": row(lambda p, x, weight, other: other + x @ weight.T),
    "conv_relu": row(_conv_relu),
    "conv_bn": row(_conv_bn),
    "conv_bn_relu": row(lambda p, **tensors: nn.relu(_conv_bn(p, **tensors))),
    "embedding_bag": row(_embedding_bag, "jax.ops.segment_sum"),
    "batched_embedding_bag": row(_batched_bag, "jax.ops.segment_sum"),
}
