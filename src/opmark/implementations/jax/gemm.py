"""Products of matrices and vectors, and sums of products by an equation."""

from __future__ import annotations

from typing import Any

from opmark.implementations._rows import calls
from opmark.implementations.jax._modules import jnp, row
from opmark.schema import Params


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


IMPLEMENTATIONS = {
    "matmul": calls("jax.numpy.matmul", "a", "b"),
    "batched_matmul": calls("jax.numpy.matmul", "a", "b"),
    "grouped_gemm": row(_grouped, "jax.numpy.matmul"),
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
}
