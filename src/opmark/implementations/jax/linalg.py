"""Decompositions, solutions and powers of matrices, many at a time."""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.implementations._rows import calls
from opmark.implementations.jax._modules import jnp, lax, linalg, row
from opmark.schema import Params


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
