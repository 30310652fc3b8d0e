"""Linear algebra: determinants, inverses, systems of equations. Flops are those of LAPACK (Working Note 41)."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import calls, torch
from opmark.operators._matrices import (
    RIGHT_SIDES,
    SQUARES,
    N,
    lower_triangular,
    make_symmetric,
    map_matrices,
    mixed_determinants,
    near_identity,
    on_matrices,
    positive_definite,
    rectangle,
    uniform,
)
from opmark.schema import Launch, Params, TensorSpec
from opmark.schema.param import flag, size

K = size("k", "columns of b")
UPPER = flag("upper", "a is upper triangular; otherwise lower. The other half is not read")


def getrf(n: int) -> int:
    """Flops of the LU factors of an n x n matrix: 2/3 n³ - n²/2 - n/6."""
    return (4 * n**3 - 3 * n**2 - n) // 6


def getri(n: int) -> int:
    """Flops of the inverse from the LU factors: 4/3 n³ - n² + 5/3 n."""
    return (4 * n**3 - 3 * n**2 + 5 * n) // 3


def potrf(n: int) -> int:
    """Flops of Cholesky's factor: n³/3 + n²/2 + n/6."""
    return (2 * n**3 + 3 * n**2 + n) // 6


def potri(n: int) -> int:
    """Flops of the inverse from Cholesky's factor: 2/3 n³ + n²/2 + 5/6 n."""
    return (4 * n**3 + 3 * n**2 + 5 * n) // 6


def getrs(n: int, k: int) -> int:
    """Flops of two triangular systems with k right sides: k (2 n² - n)."""
    return k * (2 * n**2 - n)


def _square(make: Any) -> Any:
    return lambda p: {"a": rectangle(p, p["n"], p["n"], make)}


def _elements(p: Params) -> int:
    return int(p["n"] ** 2)


def _right_side(make: Any) -> Any:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        return {"a": rectangle(p, p["n"], p["n"], make), "b": uniform(p, p["n"], p["k"])}

    return inputs


def _half(p: Params, a: Any) -> Any:
    return np.triu(a) if p["upper"] else np.tril(a)


DET = on_matrices(
    "det",
    "determinant of each matrix",
    inputs=_square(near_identity),
    out=lambda _: 1,
    flops=lambda p: getrf(p["n"]) + p["n"] - 1,
    backward_flops=lambda p: getri(p["n"]) + p["n"] ** 2,  # the inverse from the factors, times the determinant
    reference=lambda p, a: np.linalg.det(a),
    gradients=("a",),
    torch=calls("torch.linalg.det", "a"),
    aliases=("linalg_det",),
)

SLOGDET = on_matrices(
    "slogdet",
    "sign of the determinant of each matrix, and logarithm of its magnitude",
    inputs=_square(mixed_determinants),
    out=lambda _: 2,
    flops=lambda p: getrf(p["n"]) + 2 * p["n"] - 1,
    backward_flops=lambda p: getri(p["n"]) + p["n"] ** 2,
    reference=lambda p, a: tuple(np.linalg.slogdet(a)),
    gradients=("a",),
    torch=calls("torch.linalg.slogdet", "a"),
    aliases=("linalg_slogdet", "logdet"),
)

INVERSE = on_matrices(
    "inverse",
    "inverse of each matrix",
    inputs=_square(near_identity),
    out=_elements,
    flops=lambda p: getrf(p["n"]) + getri(p["n"]),  # 2 n³ - 3/2 n² + 3/2 n
    backward_flops=lambda p: 4 * p["n"] ** 3,  # two products
    reference=lambda p, a: np.linalg.inv(a),
    gradients=("a",),
    torch=calls("torch.linalg.inv", "a"),
    aliases=("linalg_inverse", "linalg_inv", "inv"),
)

SOLVE = on_matrices(
    "solve",
    "x[n,k] with a[n,n] x = b[n,k], for each pair",
    params=(N, K),
    presets=RIGHT_SIDES,
    inputs=_right_side(near_identity),
    out=lambda p: p["n"] * p["k"],
    flops=lambda p: getrf(p["n"]) + getrs(p["n"], p["k"]),
    # The transposed system with the existing factors; for a, its solution times x.
    backward_flops=lambda p: getrs(p["n"], p["k"]) + 2 * p["n"] ** 2 * p["k"],
    reference=lambda p, a, b: np.linalg.solve(a, b),
    gradients=("a", "b"),
    torch=calls("torch.linalg.solve", "a", "b"),
    aliases=("linalg_solve", "gesv"),
)

CHOLESKY = on_matrices(
    "cholesky",
    "lower triangular factor of each symmetric positive definite matrix",
    inputs=_square(positive_definite),
    out=_elements,
    flops=lambda p: potrf(p["n"]),
    backward_flops=lambda p: 3 * p["n"] ** 3,  # a product with a triangular matrix and two triangular systems
    reference=lambda p, a: np.linalg.cholesky(make_symmetric(a)),
    gradients=("a",),
    numpy=calls("numpy.linalg.cholesky", "a"),
    torch=calls("torch.linalg.cholesky", "a"),
    aliases=("linalg_potrf", "linalg_cholesky", "potrf"),
)


def _cholesky_inverse(p: Params, a: Any) -> Any:
    """Use a as it is, even if a finite difference has filled its upper half: frameworks' gradients assume that."""
    return np.linalg.inv(a @ np.swapaxes(a, -1, -2))


CHOLESKY_INVERSE = on_matrices(
    "cholesky_inverse",
    "inverse of each symmetric matrix, from its lower triangular factor",
    inputs=_square(lower_triangular),
    out=_elements,
    flops=lambda p: potri(p["n"]),
    backward_flops=lambda p: 6 * p["n"] ** 3 + p["n"] ** 2,  # three products with a symmetric sum
    reference=_cholesky_inverse,
    gradients=("a",),
    torch=calls("torch.cholesky_inverse", "a"),
    aliases=("linalg_potri", "potri"),
)


def _solve_triangular(p: Params, a: Any, b: Any) -> Any:
    from scipy.linalg import solve_triangular

    return map_matrices(partial(solve_triangular, lower=not p["upper"]), a, b)


TRIANGULAR_SOLVE = on_matrices(
    "triangular_solve",
    "x[n,k] with a[n,n] x = b[n,k], a triangular, for each pair",
    params=(N, K, UPPER),
    presets=RIGHT_SIDES,
    inputs=_right_side(near_identity),
    out=lambda p: p["n"] * p["k"],
    flops=lambda p: p["k"] * p["n"] ** 2,
    backward_flops=lambda p: p["k"] * p["n"] ** 2 + p["k"] * p["n"] * (p["n"] + 1),  # half of a's gradient is zero
    reference=_solve_triangular,
    gradients=("a", "b"),
    torch=calls("torch.linalg.solve_triangular", "a", "b", upper="upper"),
    aliases=("linalg_trsm", "trsm", "solve_triangular", "linalg_solve_triangular"),
)


def _torch_trmm(p: Params, a: Any, b: Any) -> Launch:
    import torch as framework

    half = framework.triu if p["upper"] else framework.tril
    return lambda: framework.matmul(half(a), b)


TRMM = on_matrices(
    "trmm",
    "product of a triangular matrix and another: a[n,n] b[n,k], for each pair",
    params=(N, K, UPPER),
    presets=RIGHT_SIDES,
    inputs=_right_side(near_identity),
    out=lambda p: p["n"] * p["k"],
    flops=lambda p: p["k"] * p["n"] ** 2,
    backward_flops=lambda p: p["k"] * p["n"] ** 2 + p["k"] * p["n"] * (p["n"] + 1),
    reference=lambda p, a, b: _half(p, a) @ b,
    gradients=("a", "b"),
    torch=torch(_torch_trmm),
    aliases=("linalg_trmm",),
)

SYRK = on_matrices(
    "syrk",
    "product of each matrix a[n,k] with its own transpose",
    params=(size("n", "rows of a, rows and columns of the result"), size("k", "columns of a")),
    presets=RIGHT_SIDES,
    inputs=lambda p: {"a": uniform(p, p["n"], p["k"])},
    out=_elements,
    flops=lambda p: p["k"] * p["n"] * (p["n"] + 1),  # the result is symmetric, so one half suffices
    backward_flops=lambda p: 2 * p["k"] * p["n"] ** 2 + p["n"] ** 2,
    terms=lambda p: int(p["k"]),
    reference=lambda p, a: a @ np.swapaxes(a, -1, -2),
    gradients=("a",),
    torch=torch(lambda p, a: lambda: a @ a.mT),
    aliases=("linalg_syrk",),
)


def products(power: int) -> int:
    """Return the number of multiplications for a power: squarings, and one for every further binary digit that is 1."""
    return power.bit_length() - 1 + power.bit_count() - 1


MATRIX_POWER = on_matrices(
    "matrix_power",
    "an integer power of each matrix",
    params=(N, size("power", "the exponent", 5)),
    presets=SQUARES,
    inputs=_square(near_identity),
    out=_elements,
    flops=lambda p: 2 * p["n"] ** 3 * products(p["power"]),
    backward_flops=lambda p: 4 * p["n"] ** 3 * products(p["power"]),
    reference=lambda p, a: np.linalg.matrix_power(a, p["power"]),
    gradients=("a",),
    torch=calls("torch.linalg.matrix_power", "a", n="power"),
    aliases=("linalg_matrix_power",),
)

OPERATORS = (
    DET, SLOGDET, INVERSE, SOLVE, CHOLESKY, CHOLESKY_INVERSE, TRIANGULAR_SOLVE, TRMM, SYRK, MATRIX_POWER,
)  # fmt: skip
