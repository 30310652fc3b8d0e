"""Operators of language models: attention over a cache, rotary embedding, choice of experts."""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.implementations.onnx._graph import GraphBuilder, graph
from opmark.implementations.onnx.products import attention, causal_mask, repeat_heads
from opmark.schema import Params


def _keys(g: GraphBuilder, p: Params, cache: str, table: str, kv_len: int) -> Any:
    """Return keys as [batch, head, token, element], from rows or pages of the cache."""
    if not p["block_size"]:
        return cache
    heads, block, dim = g.shape(cache)[1:]
    pages = -(-kv_len // block)
    picked = g.Transpose(g.Gather(cache, table, axis=0), perm=[0, 2, 1, 3, 4])
    whole = g.Reshape(picked, [p["batch"], heads, pages * block, dim])
    return whole if pages * block == kv_len else g.Slice(whole, [0], [kv_len], [2])


def _over_cache(
    g: GraphBuilder, p: Params, q: str, k_cache: str, v_cache: str, block_table: str = "", **scales: str
) -> Any:
    """Compute attention of sequences of equal length at once."""
    if p["q_lens"] or p["cache_lens"]:
        raise Unsupported("sequences of different lengths would need one part of a model each")
    if scales:
        raise Unsupported(f"a cache of {p['cache_dtype']} cannot be multiplied in ONNX")
    heads, dim, q_len = p["q_heads"], p["head_dim"], p["q_len"]
    kv_heads, kv_len = p["kv_heads"] or heads, q_len + p["cache_len"]
    apart = g.Transpose(g.Reshape(q, [p["batch"], q_len, heads, dim]), perm=[0, 2, 1, 3])
    k, v = (_keys(g, p, cache, block_table, kv_len) for cache in (k_cache, v_cache))
    sizes = [p["batch"], kv_heads, kv_len, dim]
    k, v = (repeat_heads(g, x, sizes, heads // kv_heads) for x in (k, v))
    mask = causal_mask(g, p["dtype"], q_len, kv_len) if q_len > 1 else ""
    found = attention(g, apart, k, v, dim**-0.5, mask)
    return g.Reshape(g.Transpose(found, perm=[0, 2, 1, 3]), [p["batch"] * q_len, heads, dim])


def _positions(p: Params) -> list[int]:
    """Return the position of each new token in its sequence."""
    news = p["q_lens"] or [p["q_len"]] * p["batch"]
    olds = p["cache_lens"] or [p["cache_len"]] * p["batch"]
    return [old + i for new, old in zip(news, olds, strict=True) for i in range(new)]


def _rotary(g: GraphBuilder, p: Params, packed_qkv: str, cos: str, sin: str) -> Any:
    start, dim = p["rope_offset"], p["rope_dim"] or p["head_dim"] - p["rope_offset"]
    places = g.constant(_positions(p))
    c, s = (g.Unsqueeze(g.Gather(table, places), [1]) for table in (cos, sin))
    kept = g.Slice(packed_qkv, [0], [p["q_heads"] + p["kv_heads"]], [1])
    whole = dim == p["head_dim"]
    x = kept if whole else g.Slice(kept, [start], [start + dim], [2])
    first, second = g.Split(x, outputs=2, axis=-1, num_outputs=2)
    turned = g.Add(g.Mul(x, c), g.Mul(g.Concat(g.Neg(second), first, axis=-1), s))
    if whole:
        return turned
    before = [g.Slice(kept, [0], [start], [2])] if start else []
    end = start + dim
    behind = [g.Slice(kept, [end], [p["head_dim"]], [2])] if end < p["head_dim"] else []
    return g.Concat(*before, turned, *behind, axis=-1)


def _single(g: GraphBuilder, x: str) -> str:
    return x if g.dtype(x) == "float32" else str(g.Cast(x, to="float32"))


def _softmax_topk(g: GraphBuilder, p: Params, logits: str) -> Any:
    scores = _single(g, logits)
    if p["compute_mode"] == "pre-softmax":
        return g.TopK(g.Softmax(scores, axis=-1), [p["topk"]], outputs=2)
    chosen, places = g.TopK(scores, [p["topk"]], outputs=2)
    return g.Softmax(chosen, axis=-1), places


def _group_topk(g: GraphBuilder, p: Params, logits: str, bias: str) -> Any:
    """Exclude the other groups by scores of minus infinity."""
    groups, each = p["groups"], p["num_experts"] // p["groups"]
    scores = g.Sigmoid(_single(g, logits))
    grouped = g.Reshape(g.Add(scores, bias), [-1, groups, each])
    best = g.ReduceSum(g.TopK(grouped, [2], outputs=2)[0], [-1], keepdims=0)
    _, opened = g.TopK(best, [p["topk_groups"]], outputs=2)
    hot = g.OneHot(opened, g.constant(groups), g.constant([0.0, 1.0], "float32"), axis=-1)
    is_open = g.Greater(g.ReduceMax(hot, [1], keepdims=0), 0.5)
    allowed = g.Where(g.Unsqueeze(is_open, [-1]), grouped, float("-inf"))
    _, places = g.TopK(g.Reshape(allowed, [-1, p["num_experts"]]), [p["topk"]], outputs=2)
    chosen = g.GatherElements(scores, places, axis=1)
    return g.Mul(g.Div(chosen, g.ReduceSum(chosen, [-1], keepdims=1)), p["scale"]), places


IMPLEMENTATIONS = {
    "flash_attention": graph(_over_cache),
    "flash_decoding": graph(_over_cache),
    "rotary_embedding": graph(_rotary),
    "moe_softmax_topk": graph(_softmax_topk),
    "group_topk": graph(_group_topk),
    "moe_gating_gemm": graph(lambda g, p, x, weight: g.Gemm(_single(g, x), weight, transB=1)),
}
