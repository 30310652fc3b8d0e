"""Products of matrices and vectors, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opmark.implementations.onnx._graph import GraphBuilder, graph, node
from opmark.implementations.onnx.elementwise import gelu
from opmark.schema import Implementation, Params


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


def _sdpa(g: GraphBuilder, p: Params, q: str, k: str, v: str) -> Any:
    heads = p["kv_heads"] or p["heads"]
    k, v = (repeat_heads(g, x, g.shape(x), p["heads"] // heads) for x in (k, v))
    mask = causal_mask(g, p["dtype"], p["q_len"], p["kv_len"]) if p["causal"] else ""
    return attention(g, q, k, v, p["head_dim"] ** -0.5, mask)


def _chain(g: GraphBuilder, p: Params, q: str, k: str, v: str) -> Any:
    return attention(g, q, k, v, p["head_dim"] ** -0.5)


IMPLEMENTATIONS = {
    "matmul": node("MatMul", "a", "b"),
    "batched_matmul": node("MatMul", "a", "b"),
    "grouped_gemm": graph(_grouped_gemm),
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
}
