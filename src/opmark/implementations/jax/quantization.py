"""8-bit numbers: quantization with given scales or one computed per row, and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.implementations.jax._modules import jnp, lax, nn, row
from opmark.implementations.jax.normalization import rms_norm
from opmark.schema import Implementation, Params

_LARGEST = 127


def _quantize(p: Params, x: Any, scale: Any) -> Any:
    return jnp.clip(jnp.round(x / scale) + p["zero_point"], -128, 127).astype("int8")


def _dequantize(p: Params, x: Any, scale: Any) -> Any:
    return ((x.astype("float32") - p["zero_point"]) * scale).astype(p["dtype"])


def _quantize_rows(values: Any) -> tuple[Any, Any]:
    """Return integers and one scale per row, such that the largest of a row is 127."""
    scale = jnp.abs(values).max(axis=-1) / _LARGEST
    return jnp.round(values / scale[..., None]).astype("int8"), scale


def _dynamic(function: Callable[..., Any]) -> Implementation:
    """Make an implementation that computes in float32; further outputs have the type of x."""

    def call(p: Params, **tensors: Any) -> Any:
        first, *others = function(p, **{name: x.astype("float32") for name, x in tensors.items()})
        return *_quantize_rows(first), *(other.astype(p["dtype"]) for other in others)

    return row(call)


def _add_rms_norm(p: Params, x: Any, weight: Any, smooth: Any, residual: Any = None) -> Any:
    added = x if residual is None else x + residual
    normed = rms_norm(p, added, weight)
    return normed * smooth, *{"none": (), "res": (added,), "norm": (normed,)}[p["output_mode"]]


def _head_rms_norm(p: Params, x: Any, weight: Any, smooth: Any) -> Any:
    return (rms_norm(p, x, weight).reshape(len(x), -1) * smooth,)


def _swiglu(p: Params, x: Any, smooth: Any) -> Any:
    gate, value = jnp.split(x, 2, axis=-1)
    return (nn.silu(gate) * value * smooth,)


def _product(x: Any, weight: Any) -> Any:
    """Return x weight' over the last two axes; integers are summed in 32 bits, 8-bit floats in float32."""
    wide = "int32" if x.dtype == "int8" else "float32"
    many = tuple(range(x.ndim - 2))
    last = (x.ndim - 1,)
    return lax.dot_general(x, weight, ((last, last), (many, many)), preferred_element_type=wide).astype("float32")


def _quant_matmul(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any, bias: Any = 0) -> Any:
    return (_product(x, weight) * x_scale[:, None] * w_scale + bias).astype(p["out_dtype"])


def _group_sum(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any) -> Any:
    return (_product(x, weight) * x_scale[..., None] * w_scale[:, None]).sum(axis=0).astype(p["out_dtype"])


IMPLEMENTATIONS = {
    "quantize": row(_quantize),
    "dequantize": row(_dequantize),
    "scale_dynamic_quant": _dynamic(lambda p, x, smooth: (x * smooth,)),
    "add_rms_norm_dynamic_quant": _dynamic(_add_rms_norm),
    "head_rms_norm_dynamic_quant": _dynamic(_head_rms_norm),
    "swiglu_dynamic_quant": _dynamic(_swiglu),
    "quant_matmul": row(_quant_matmul, "jax.lax.dot_general"),
    "quant_group_gemm_reduce_sum": row(_group_sum, "jax.lax.dot_general"),
}
