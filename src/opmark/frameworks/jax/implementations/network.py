"""Parts of networks: normalisation, fused chains, attention, embedding bags, recurrent cells and layers.

Statistics are computed in at least float32, as layer libraries on JAX do.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from math import prod
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.jax.implementations._modules import jnp, lax, nn, row, wide
from opmark.frameworks.jax.implementations.convolution import conv
from opmark.plugin import Implementation, Params


def _normal(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """Normalise to zero mean and unit variance, in at least float32."""
    x = wide(x)
    mean, var = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
    return (x - mean) * lax.rsqrt(var + eps)


def layer_norm(p: Params, x: Any, weight: Any, bias: Any = None) -> Any:
    scaled = nn.standardize(wide(x), axis=-1, epsilon=p["eps"]).astype(x.dtype) * weight
    return scaled if bias is None else scaled + bias


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


# Chains that compilers fuse, attention, rotary embedding, embedding bags.


def _attention(p: Params, q: Any, k: Any, v: Any) -> Any:
    """Call JAX's own attention, which wants heads after positions and computes the softmax in float32."""
    if p["dtype"] not in ("float32", "float16", "bfloat16"):
        raise Unsupported(f"jax.nn.dot_product_attention computes in float32 or 16 bits, not in {p['dtype']}")
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
    return _batch_norm({"training": False, "momentum": 0.1, **p}, conv(p, x, weight), gamma, beta, mean, var)


def _conv_bn_relu(p: Params, **tensors: Any) -> Any:
    found = _conv_bn(p, **tensors)
    return (nn.relu(found[0]), *found[1:]) if p.get("training") else nn.relu(found)


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


# Recurrent cells, and networks over sequences by a scan over the steps of each layer and direction.

State = tuple[Any, ...]
Cell = Callable[..., State]
"""cell(p, x_part, state, w_hh, b_hh) returns the next state; x_part is x w_ih' + b_ih."""


def _rnn(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    total = x_part + state[0] @ w_hh.T + b_hh
    return (jnp.tanh(total) if p["nonlinearity"] == "tanh" else nn.relu(total),)


def _lstm(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    h, c = state
    i, f, g, o = jnp.split(x_part + h @ w_hh.T + b_hh, 4, axis=-1)
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
    return nn.sigmoid(o) * jnp.tanh(c), c


def _gru(p: Params, x_part: Any, state: State, w_hh: Any, b_hh: Any) -> State:
    (h,) = state
    x_r, x_z, x_n = jnp.split(x_part, 3, axis=-1)
    h_r, h_z, h_n = jnp.split(h @ w_hh.T + b_hh, 3, axis=-1)
    n = jnp.tanh(x_n + nn.sigmoid(x_r + h_r) * h_n)
    return (n + nn.sigmoid(x_z + h_z) * (h - n),)


_KINDS: dict[str, tuple[Cell, int, tuple[str, ...]]] = {
    "rnn": (_rnn, 1, ("h",)),
    "lstm": (_lstm, 4, ("h", "c")),
    "gru": (_gru, 3, ("h",)),
}
"""Cell, number of gates, and names of the states."""


def _one_step(cell: Cell, states: tuple[str, ...]) -> Implementation:
    def call(p: Params, x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, **given: Any) -> Any:
        found = cell(p, x @ w_ih.T + b_ih, tuple(given[name] for name in states), w_hh, b_hh)
        return found if len(found) > 1 else found[0]

    return row(call)


def _unpack(p: Params, gates: int, weights: Any) -> list[tuple[Any, ...]]:
    """Split one vector into (w_ih, w_hh, b_ih, b_hh) of each layer and direction: matrices first, then biases."""
    hidden, directions = p["hidden_size"], 2 if p["bidirectional"] else 1
    widths = [p["input_size"]] * directions + [directions * hidden] * (directions * (p["layers"] - 1))
    shapes: list[tuple[int, ...]] = [(gates * hidden, n) for width in widths for n in (width, hidden)]
    shapes += [(gates * hidden,)] * 2 * len(widths)
    pieces, start = [], 0
    for shape in shapes:
        pieces.append(weights[start : start + prod(shape)].reshape(shape))
        start += prod(shape)
    half = len(pieces) // 2
    return [(*pieces[i : i + 2], *pieces[half + i : half + i + 2]) for i in range(0, half, 2)]


def _network(cell: Cell, gates: int, names: tuple[str, ...]) -> Implementation:
    def call(p: Params, x: Any, weights: Any, **given: Any) -> Any:
        layers = iter(_unpack(p, gates, weights))
        starts = iter(zip(*(given[f"{name}0"] for name in names), strict=True))
        last = []
        for _ in range(p["layers"]):
            found = []
            for backwards in range(2 if p["bidirectional"] else 1):
                state, outputs = _run(p, cell, x, next(starts), *next(layers), backwards=bool(backwards))
                found.append(outputs)
                last.append(state)
            x = jnp.concatenate(found, axis=-1)
        return x, *(jnp.stack(state) for state in zip(*last, strict=True))

    return row(call, "jax.lax.scan")


def _run(p: Params, cell: Cell, x: Any, start: State, *weights: Any, backwards: bool) -> tuple[State, Any]:
    w_ih, w_hh, b_ih, b_hh = weights

    def step(state: State, x_part: Any) -> tuple[State, Any]:
        following = cell(p, x_part, state, w_hh, b_hh)
        return following, following[0]

    state, outputs = lax.scan(step, start, x @ w_ih.T + b_ih, reverse=backwards)
    return state, outputs


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
    "scaled_dot_product_attention": row(_attention, "jax.nn.dot_product_attention"),
    "matmul_softmax_matmul": row(_attention_chain),
    "rotary_embedding": row(_rotary),
    "linear_relu": row(lambda p, x, weight, bias: nn.relu(x @ weight.T + bias)),
    "linear_gelu": row(_linear_gelu),
    "linear_add": row(lambda p, x, weight, other: other + x @ weight.T),
    "conv_relu": row(_conv_relu),
    "conv_bn": row(_conv_bn),
    "conv_bn_relu": row(_conv_bn_relu),
    "embedding_bag": row(_embedding_bag, "jax.ops.segment_sum"),
    "batched_embedding_bag": row(_batched_bag, "jax.ops.segment_sum"),
    **{f"{name}_cell": _one_step(cell, states) for name, (cell, _, states) in _KINDS.items()},
    **{name: _network(*kind) for name, kind in _KINDS.items()},
}
