"""Products of matrices and vectors, also with 8-bit numbers, and decompositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.implementation import calls
from opmark.frameworks.jax.implementations._modules import jnp, lax, linalg, nn, row
from opmark.frameworks.jax.implementations.network import rms_norm
from opmark.plugin import Implementation, Params


def _largest(kind: str) -> float:
    return float(jnp.iinfo(kind).max if kind == "int8" else jnp.finfo(kind).max)


def _quantize(p: Params, x: Any, scale: Any) -> Any:
    if (kind := p.get("quantized_dtype", "int8")) != "int8":
        return jnp.clip(x / scale, -_largest(kind), _largest(kind)).astype(kind)
    return jnp.clip(jnp.round(x / scale) + p["zero_point"], -128, 127).astype(kind)


def _dequantize(p: Params, x: Any, scale: Any) -> Any:
    return ((x.astype("float32") - p["zero_point"]) * scale).astype(p["dtype"])


def _quantize_rows(values: Any, kind: str) -> tuple[Any, Any]:
    """Return 8-bit numbers and one scale per row, such that the largest of a row is the largest of their type."""
    scale = jnp.abs(values).max(axis=-1) / _largest(kind)
    numbers = values / scale[..., None]
    return (jnp.round(numbers) if kind == "int8" else numbers).astype(kind), scale


def _dynamic(function: Callable[..., Any]) -> Implementation:
    """Make an implementation that computes in float32; further outputs have the type of x."""

    def call(p: Params, **tensors: Any) -> Any:
        first, *others = function(p, **{name: x.astype("float32") for name, x in tensors.items()})
        rows = _quantize_rows(first, p.get("quantized_dtype", "int8"))
        return *rows, *(other.astype(p["dtype"]) for other in others)

    return row(call)


def _add_rms_norm(p: Params, x: Any, weight: Any, smooth: Any, residual: Any = None) -> Any:
    added = x if residual is None else x + residual
    normed = rms_norm(p, added, weight)
    return normed * smooth, *{"none": (), "res": (added,), "norm": (normed,), "both": (added, normed)}[p["output_mode"]]


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


def _quant_batched(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any) -> Any:
    return (_product(x, weight) * x_scale[..., None] * w_scale[:, None]).astype(p["out_dtype"])


def _quant_grouped(p: Params, **inputs: Any) -> Any:
    names = ("x", "x_scale", "weight", "w_scale")
    return tuple(_quant_matmul(p, *(inputs[f"{name}{i}"] for name in names)) for i in range(len(p["M"])))


# Products of matrices and vectors, and sums of products by an equation.


def _einsum(p: Params, a: Any, b: Any) -> Any:
    return jnp.einsum("{},{}->{}".format(*p["equation"].split("-")), a, b)


def _grouped(p: Params, **matrices: Any) -> Any:
    return tuple(matrices[f"a{i}"] @ matrices[f"b{i}"] for i in range(len(p["M"])))


def _add_product(p: Params, c: Any, a: Any, b: Any) -> Any:
    return p["beta"] * c + p["alpha"] * (a @ b)


def _khatri_rao(p: Params, a: Any, b: Any) -> Any:
    return (a[:, None, :] * b[None, :, :]).reshape(-1, p["N"])


def _bilinear(p: Params, x: Any, y: Any, weight: Any, bias: Any) -> Any:
    return jnp.einsum("bi,oij,bj->bo", x, weight, y) + bias


def _distance(p: Params, x: Any, y: Any) -> Any:
    return jnp.linalg.norm(x[:, :, None] - y[:, None], axis=-1)


# Decompositions, solutions and powers of matrices, many at a time.


def _lq(p: Params, a: Any) -> Any:
    q, r = jnp.linalg.qr(a.mT)
    return q.mT, r.mT


def _lstsq(p: Params, a: Any, b: Any) -> Any:
    """Map JAX's lstsq, which takes one pair, over all pairs."""
    from jax import vmap

    return vmap(lambda one, right: jnp.linalg.lstsq(one, right)[0])(a, b)


def _cholesky_inverse(p: Params, a: Any) -> Any:
    """Refuse the gradient: JAX's is zero in the upper half, which it does not read; the catalogue's uses all of a."""
    from jax import custom_jvp

    @custom_jvp
    def inverse(a: Any) -> Any:
        unit = jnp.broadcast_to(jnp.eye(p["n"], dtype=a.dtype), a.shape)
        return linalg.cho_solve((a, True), unit)

    @inverse.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise Unsupported("the gradient of jax.scipy.linalg.cho_solve leaves out the upper half of the factor")

    return inverse(a)


def _trmm(p: Params, a: Any, b: Any) -> Any:
    return (jnp.triu if p["upper"] else jnp.tril)(a) @ b


def _solve_triangular(p: Params, a: Any, b: Any) -> Any:
    return lax.linalg.triangular_solve(a, b, left_side=True, lower=not p["upper"])


IMPLEMENTATIONS = {
    "quantize": row(_quantize),
    "dequantize": row(_dequantize),
    "scale_dynamic_quant": _dynamic(lambda p, x, smooth: (x * smooth,)),
    "add_rms_norm_dynamic_quant": _dynamic(_add_rms_norm),
    "head_rms_norm_dynamic_quant": _dynamic(_head_rms_norm),
    "swiglu_dynamic_quant": _dynamic(_swiglu),
    "quant_matmul": row(_quant_matmul, "jax.lax.dot_general"),
    "quant_group_gemm_reduce_sum": row(_group_sum, "jax.lax.dot_general"),
    "quant_batched_matmul": row(_quant_batched, "jax.lax.dot_general"),
    "quant_grouped_gemm": row(_quant_grouped, "jax.lax.dot_general"),
    "matmul": calls("jax.numpy.matmul", "a", "b"),
    "batched_matmul": calls("jax.numpy.matmul", "a", "b"),
    "grouped_gemm": row(_grouped, "jax.numpy.matmul"),
    "grouped_gemm_mixed": row(_grouped, "jax.numpy.matmul"),
    "gemv": calls("jax.numpy.matmul", "a", "x"),
    "addmv": row(lambda p, c, a, x: c + a @ x),
    "linear": row(lambda p, x, weight, bias: x @ weight.T + bias),
    "linear_no_bias": row(lambda p, x, weight: x @ weight.T, "jax.numpy.matmul"),
    "addmm": row(_add_product),
    "baddbmm": row(_add_product),
    "einsum": row(_einsum, "jax.numpy.einsum"),
    "tensordot": row(lambda p, a, b: jnp.tensordot(a, b, axes=len(p["K"])), "jax.numpy.tensordot"),
    "khatri_rao": row(_khatri_rao),
    "kron": calls("jax.numpy.kron", "a", "b"),
    "bilinear": row(_bilinear, "jax.numpy.einsum"),
    "multi_dot": row(lambda p, **matrices: jnp.linalg.multi_dot([*matrices.values()]), "jax.numpy.linalg.multi_dot"),
    "outer": calls("jax.numpy.outer", "x", "y"),
    "addr": row(lambda p, c, x, y: c + jnp.outer(x, y)),
    "inner": calls("jax.numpy.vecdot", "x", "y"),
    "cross": calls("jax.numpy.cross", "x", "y"),
    "cdist": row(_distance),
    "qr": row(lambda p, a: tuple(jnp.linalg.qr(a)), "jax.numpy.linalg.qr"),
    "lq": row(_lq, "jax.numpy.linalg.qr"),
    "svdvals": calls("jax.numpy.linalg.svdvals", "a"),
    "eigvalsh": calls("jax.numpy.linalg.eigvalsh", "a"),
    "lstsq": row(_lstsq, "jax.numpy.linalg.lstsq"),
    "det": calls("jax.numpy.linalg.det", "a"),
    "slogdet": row(lambda p, a: tuple(jnp.linalg.slogdet(a)), "jax.numpy.linalg.slogdet"),
    "inverse": calls("jax.numpy.linalg.inv", "a"),
    "solve": calls("jax.numpy.linalg.solve", "a", "b"),
    "cholesky": calls("jax.numpy.linalg.cholesky", "a"),
    "cholesky_inverse": row(_cholesky_inverse, "jax.scipy.linalg.cho_solve"),
    "triangular_solve": row(_solve_triangular, "jax.lax.linalg.triangular_solve"),
    "trmm": row(_trmm),
    "syrk": row(lambda p, a: a @ a.mT, "jax.numpy.matmul"),
    "matrix_power": calls("jax.numpy.linalg.matrix_power", "a", n="power"),
}
