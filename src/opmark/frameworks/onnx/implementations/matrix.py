"""Products of matrices and vectors, attention, and operators of language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.onnx.implementations._graph import GraphBuilder, graph, node
from opmark.frameworks.onnx.implementations.elementwise import gelu, silu
from opmark.frameworks.onnx.implementations.network import rms
from opmark.plugin import Implementation, Params
from opmark.schema.tensor import FLOATS8


def _transpose(g: GraphBuilder, x: str, rank: int) -> Any:
    """Swap the last two axes."""
    return g.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


def _linear(after: Any) -> Implementation:
    def draw(g: GraphBuilder, p: Params, x: str, weight: str, bias: str) -> Any:
        return after(g, p, g.Gemm(x, weight, bias, transB=1))

    return graph(draw)


def _linear_add(g: GraphBuilder, p: Params, x: str, weight: str, other: str) -> Any:
    return g.Gemm(x, weight, other, transB=1)


def _addmm(g: GraphBuilder, p: Params, c: str, a: str, b: str) -> Any:
    return g.Gemm(a, b, c, alpha=float(p["alpha"]), beta=float(p["beta"]))


def _baddbmm(g: GraphBuilder, p: Params, c: str, a: str, b: str) -> Any:
    product = g.MatMul(a, b)
    scaled = product if p["alpha"] == 1 else g.Mul(product, p["alpha"])
    return g.Add(c if p["beta"] == 1 else g.Mul(c, p["beta"]), scaled)


def _grouped_gemm(g: GraphBuilder, p: Params, **names: str) -> Any:
    return tuple(g.MatMul(names[f"a{i}"], names[f"b{i}"]) for i in range(len(p["M"])))


def _einsum(g: GraphBuilder, p: Params, a: str, b: str) -> Any:
    left, right, out = p["equation"].split("-")
    return g.Einsum(a, b, equation=f"{left},{right}->{out}")


def _tensordot(g: GraphBuilder, p: Params, a: str, b: str) -> Any:
    rows, columns, summed = prod(p["M"]), prod(p["N"]), prod(p["K"])
    product = g.MatMul(g.Reshape(a, [rows, summed]), g.Reshape(b, [summed, columns]))
    return g.Reshape(product, [*p["M"], *p["N"]])


def _khatri_rao(g: GraphBuilder, p: Params, a: str, b: str) -> Any:
    return g.Reshape(g.Mul(g.Unsqueeze(a, [1]), g.Unsqueeze(b, [0])), [-1, p["N"]])


def _kron(g: GraphBuilder, p: Params, a: str, b: str) -> Any:
    blocks = g.Mul(g.Unsqueeze(a, [1, 3]), g.Unsqueeze(b, [0, 2]))
    return g.Reshape(blocks, [p["M"] * p["P"], p["N"] * p["Q"]])


def _bilinear(g: GraphBuilder, p: Params, x: str, y: str, weight: str, bias: str) -> Any:
    flat = g.Reshape(g.Transpose(weight, perm=[1, 0, 2]), [p["I"], -1])
    products = g.Reshape(g.MatMul(x, flat), [p["B"], p["O"], p["J"]])
    return g.Add(g.ReduceSum(g.Mul(products, g.Unsqueeze(y, [1])), [-1], keepdims=0), bias)


def _multi_dot(g: GraphBuilder, p: Params, a: str, b: str, c: str) -> Any:
    """Multiply in the order that takes the fewest operations."""
    i, j, k, n = p["sizes"]
    if i * j * k + i * k * n <= j * k * n + i * j * n:
        return g.MatMul(g.MatMul(a, b), c)
    return g.MatMul(a, g.MatMul(b, c))


def _outer(g: GraphBuilder, x: str, y: str) -> Any:
    return g.Mul(g.Unsqueeze(x, [1]), y)


def _cross(g: GraphBuilder, p: Params, x: str, y: str) -> Any:
    (x0, x1, x2), (y0, y1, y2) = (g.Split(v, outputs=3, axis=-1, num_outputs=3) for v in (x, y))
    pairs = ((x1, y2, x2, y1), (x2, y0, x0, y2), (x0, y1, x1, y0))
    return g.Concat(*(g.Sub(g.Mul(a, b), g.Mul(c, d)) for a, b, c, d in pairs), axis=-1)


def _cdist(g: GraphBuilder, p: Params, x: str, y: str) -> Any:
    difference = g.Sub(g.Unsqueeze(x, [2]), g.Unsqueeze(y, [1]))
    return g.ReduceL2(difference, [-1], keepdims=0)


def _trmm(g: GraphBuilder, p: Params, a: str, b: str) -> Any:
    return g.MatMul(g.Trilu(a, upper=int(p["upper"])), b)


def _matrix_power(g: GraphBuilder, p: Params, a: str) -> Any:
    """Compute the power by squaring."""
    power, square, result = p["power"], a, ""
    while power:
        if power & 1:
            result = g.MatMul(result, square) if result else square
        power >>= 1
        square = g.MatMul(square, square) if power else square
    return result


def attention(g: GraphBuilder, q: str, k: str, v: str, scale: float, mask: str = "") -> Any:
    """Write out softmax(q k' scale + mask) v, as only the newest engines have a node for it."""
    scores = g.Mul(g.MatMul(q, _transpose(g, k, 4)), scale)
    return g.MatMul(g.Softmax(g.Add(scores, mask) if mask else scores, axis=-1), v)


def repeat_heads(g: GraphBuilder, x: str, sizes: Sequence[int], times: int) -> Any:
    """Repeat each head of keys or values for all query heads that share it: [batch, head, n, dim]."""
    if times == 1:
        return x
    batch, heads, n, dim = sizes
    return g.Reshape(g.Expand(g.Unsqueeze(x, [2]), [batch, heads, times, n, dim]), [batch, heads * times, n, dim])


def causal_mask(g: GraphBuilder, dtype: str, q_len: int, kv_len: int) -> str:
    """Return a mask to add to scores: minus infinity for keys after the query."""
    import numpy as np

    seen = np.tri(q_len, kv_len, kv_len - q_len, dtype=bool)
    return g.constant(np.where(seen, 0.0, -np.inf), dtype)


def _refuse_float8(p: Params) -> None:
    if p["dtype"] in FLOATS8:
        raise Unsupported(f"ONNX has no product of {p['dtype']} matrices")


def _sdpa(g: GraphBuilder, p: Params, q: str, k: str, v: str) -> Any:
    _refuse_float8(p)
    heads = p["kv_heads"] or p["heads"]
    k, v = (repeat_heads(g, x, g.shape(x), p["heads"] // heads) for x in (k, v))
    mask = causal_mask(g, p["dtype"], p["q_len"], p["kv_len"]) if p["causal"] else ""
    return attention(g, q, k, v, p["head_dim"] ** -0.5, mask)


def _chain(g: GraphBuilder, p: Params, q: str, k: str, v: str) -> Any:
    return attention(g, q, k, v, p["head_dim"] ** -0.5)


# Operators of language models: attention over a cache, rotary embedding, choice of experts.


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
    _refuse_float8(p)
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


def _gating(g: GraphBuilder, p: Params, x: str, weight: str) -> Any:
    """Compute float32 scores; a weight in the type of the tokens is multiplied in that type."""
    return _single(g, g.Gemm(x if g.dtype(weight) == g.dtype(x) else _single(g, x), weight, transB=1))


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


# 8-bit numbers: quantization and back, rows with one scale each, products.

_LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}


def _wide(g: GraphBuilder, x: str) -> str:
    return x if g.dtype(x) == "float32" else str(g.Cast(x, to="float32"))


def _narrow(g: GraphBuilder, x: str, dtype: str) -> str:
    return x if g.dtype(x) == dtype else str(g.Cast(x, to=dtype))


def _scale_and_zero(g: GraphBuilder, p: Params, scale: str) -> tuple[str, str, dict[str, int]]:
    """Return scale and zero point: single numbers for the tensor, or one per channel."""
    kind = p.get("quantized_dtype", "int8")
    if p["per"] == "tensor":
        return g.Squeeze(scale, [0]), g.constant(p["zero_point"], kind), {}
    zeros = g.constant([p["zero_point"]] * p["shape"][-1], kind)
    return scale, zeros, {"axis": len(p["shape"]) - 1}


def _quantize(g: GraphBuilder, p: Params, x: str, scale: str) -> Any:
    step, zero, axis = _scale_and_zero(g, p, scale)
    return g.QuantizeLinear(_wide(g, x), step, zero, **axis)


def _dequantize(g: GraphBuilder, p: Params, x: str, scale: str) -> Any:
    step, zero, axis = _scale_and_zero(g, p, scale)
    return _narrow(g, g.DequantizeLinear(x, step, zero, **axis), p["dtype"])


def _rows(values: Callable[..., tuple[str, ...]]) -> Implementation:
    """Quantize the first output of `values` to 8-bit numbers, of which the largest of a row is the largest of their
    type, with one scale per row."""

    def draw(g: GraphBuilder, p: Params, **names: str) -> Any:
        first, *others = values(g, p, **{name: _wide(g, x) for name, x in names.items()})
        kind = p.get("quantized_dtype", "int8")
        scale = g.Div(g.ReduceMax(g.Abs(first), [-1], keepdims=1), _LARGEST[kind])
        numbers = g.Div(first, scale)
        rounded = g.Cast(g.Round(numbers) if kind == "int8" else numbers, to=kind)
        return rounded, g.Squeeze(scale, [-1]), *(_narrow(g, other, p["dtype"]) for other in others)

    return graph(draw)


def _scale(g: GraphBuilder, p: Params, x: str, smooth: str) -> tuple[str, ...]:
    return (g.Mul(x, smooth),)


def _add_rms_norm(g: GraphBuilder, p: Params, x: str, weight: str, smooth: str, residual: str = "") -> tuple[str, ...]:
    added = g.Add(x, residual) if residual else x
    normed = g.Mul(rms(g, added, p["eps"]), weight)
    also = {"none": (), "res": (added,), "norm": (normed,), "both": (added, normed)}[p["output_mode"]]
    return g.Mul(normed, smooth), *also


def _head_rms_norm(g: GraphBuilder, p: Params, x: str, weight: str, smooth: str) -> tuple[str, ...]:
    normed = g.Mul(rms(g, x, p["eps"]), weight)
    return (g.Mul(g.Reshape(normed, [0, p["heads"] * p["head_dim"]]), smooth),)


def _swiglu(g: GraphBuilder, p: Params, x: str, smooth: str) -> tuple[str, ...]:
    gate, value = g.Split(x, outputs=2, axis=-1, num_outputs=2)
    return (g.Mul(g.Mul(silu(g, gate), value), smooth),)


def _product(g: GraphBuilder, p: Params, x: str, x_scale: str, weight: str, w_scale: str, rank: int) -> Any:
    """Multiply integers, then scale."""
    if p["dtype"] != "int8":
        raise Unsupported(f"ONNX has no product of {p['dtype']} matrices")
    turned = g.Transpose(weight, perm=[*range(rank - 2), rank - 1, rank - 2])
    whole = g.Cast(g.MatMulInteger(x, turned), to="float32")
    return g.Mul(g.Mul(whole, g.Unsqueeze(x_scale, [-1])), g.Unsqueeze(w_scale, [-2]))


def _quant_matmul(
    g: GraphBuilder, p: Params, x: str, x_scale: str, weight: str, w_scale: str, bias: str = ""
) -> Any:  # fmt: skip
    product = _product(g, p, x, x_scale, weight, w_scale, 2)
    return _narrow(g, g.Add(product, bias) if bias else product, p["out_dtype"])


def _group_sum(g: GraphBuilder, p: Params, x: str, x_scale: str, weight: str, w_scale: str) -> Any:
    product = _product(g, p, x, x_scale, weight, w_scale, 3)
    return _narrow(g, g.ReduceSum(product, [0], keepdims=0), p["out_dtype"])


IMPLEMENTATIONS = {
    "matmul": node("MatMul", "a", "b"),
    "batched_matmul": node("MatMul", "a", "b"),
    "grouped_gemm": graph(_grouped_gemm),
    "grouped_gemm_mixed": graph(_grouped_gemm),
    "gemv": node("MatMul", "a", "x"),
    "addmv": graph(lambda g, p, c, a, x: g.Add(c, g.MatMul(a, x))),
    "linear": node("Gemm", "x", "weight", "bias", fixed={"transB": 1}),
    "linear_no_bias": node("Gemm", "x", "weight", fixed={"transB": 1}),
    "linear_relu": _linear(lambda g, p, y: g.Relu(y)),
    "linear_gelu": _linear(lambda g, p, y: gelu(g, y, p["approximate"])),
    "linear_add": graph(_linear_add, path="onnx.Gemm"),
    "addmm": graph(_addmm, path="onnx.Gemm"),
    "baddbmm": graph(_baddbmm),
    "einsum": graph(_einsum, path="onnx.Einsum"),
    "tensordot": graph(_tensordot),
    "khatri_rao": graph(_khatri_rao),
    "kron": graph(_kron),
    "bilinear": graph(_bilinear),
    "multi_dot": graph(_multi_dot),
    "outer": graph(lambda g, p, x, y: _outer(g, x, y)),
    "addr": graph(lambda g, p, c, x, y: g.Add(c, _outer(g, x, y))),
    "inner": graph(lambda g, p, x, y: g.ReduceSum(g.Mul(x, y), [-1], keepdims=0)),
    "cross": graph(_cross),
    "cdist": graph(_cdist),
    "det": node("Det", "a"),
    "trmm": graph(_trmm),
    "syrk": graph(lambda g, p, a: g.MatMul(a, _transpose(g, a, 3))),
    "matrix_power": graph(_matrix_power),
    "scaled_dot_product_attention": graph(_sdpa),
    "matmul_softmax_matmul": graph(_chain),
    "flash_attention": graph(_over_cache),
    "flash_decoding": graph(_over_cache),
    "rotary_embedding": graph(_rotary),
    "moe_softmax_topk": graph(_softmax_topk),
    "group_topk": graph(_group_topk),
    "moe_gating_gemm": graph(_gating),
    "quantize": graph(_quantize, path="onnx.QuantizeLinear"),
    "dequantize": graph(_dequantize, path="onnx.DequantizeLinear"),
    "scale_dynamic_quant": _rows(_scale),
    "add_rms_norm_dynamic_quant": _rows(_add_rms_norm),
    "head_rms_norm_dynamic_quant": _rows(_head_rms_norm),
    "swiglu_dynamic_quant": _rows(_swiglu),
    "quant_matmul": graph(_quant_matmul),
    "quant_group_gemm_reduce_sum": graph(_group_sum),
}
