"""8-bit numbers: quantization and back, rows with one scale each, products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.errors import Unsupported
from opmark.implementations.onnx._graph import GraphBuilder, graph
from opmark.implementations.onnx.elementwise import silu
from opmark.implementations.onnx.normalization import rms
from opmark.schema import Implementation, Params

_LARGEST = 127.0


def _wide(g: GraphBuilder, x: str) -> str:
    return x if g.dtype(x) == "float32" else str(g.Cast(x, to="float32"))


def _narrow(g: GraphBuilder, x: str, dtype: str) -> str:
    return x if g.dtype(x) == dtype else str(g.Cast(x, to=dtype))


def _scale_and_zero(g: GraphBuilder, p: Params, scale: str) -> tuple[str, str, dict[str, int]]:
    """Return scale and zero point: single numbers for the tensor, or one per channel."""
    if p["per"] == "tensor":
        return g.Squeeze(scale, [0]), g.constant(p["zero_point"], "int8"), {}
    return scale, g.constant([p["zero_point"]] * p["shape"][-1], "int8"), {"axis": len(p["shape"]) - 1}


def _quantize(g: GraphBuilder, p: Params, x: str, scale: str) -> Any:
    step, zero, axis = _scale_and_zero(g, p, scale)
    return g.QuantizeLinear(_wide(g, x), step, zero, **axis)


def _dequantize(g: GraphBuilder, p: Params, x: str, scale: str) -> Any:
    step, zero, axis = _scale_and_zero(g, p, scale)
    return _narrow(g, g.DequantizeLinear(x, step, zero, **axis), p["dtype"])


def _rows(values: Callable[..., tuple[str, ...]]) -> Implementation:
    """Quantize the first output of `values` to integers, of which the largest of a row is 127, with one scale per
    row."""

    def draw(g: GraphBuilder, p: Params, **names: str) -> Any:
        first, *others = values(g, p, **{name: _wide(g, x) for name, x in names.items()})
        scale = g.Div(g.ReduceMax(g.Abs(first), [-1], keepdims=1), _LARGEST)
        numbers = g.Cast(g.Round(g.Div(first, scale)), to="int8")
        return numbers, g.Squeeze(scale, [-1]), *(_narrow(g, other, p["dtype"]) for other in others)

    return graph(draw)


def _scale(g: GraphBuilder, p: Params, x: str, smooth: str) -> tuple[str, ...]:
    return (g.Mul(x, smooth),)


def _add_rms_norm(g: GraphBuilder, p: Params, x: str, weight: str, smooth: str, residual: str = "") -> tuple[str, ...]:
    added = g.Add(x, residual) if residual else x
    normed = g.Mul(rms(g, added, p["eps"]), weight)
    also = {"none": (), "res": (added,), "norm": (normed,)}[p["output_mode"]]
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
    "quantize": graph(_quantize, path="onnx.QuantizeLinear"),
    "dequantize": graph(_dequantize, path="onnx.DequantizeLinear"),
    "scale_dynamic_quant": _rows(_scale),
    "add_rms_norm_dynamic_quant": _rows(_add_rms_norm),
    "head_rms_norm_dynamic_quant": _rows(_head_rms_norm),
    "swiglu_dynamic_quant": _rows(_swiglu),
    "quant_matmul": graph(_quant_matmul),
    "quant_group_gemm_reduce_sum": graph(_group_sum),
}
