"""Linear algebra: determinants, inverses, systems of equations, decompositions and least squares. Flops are those of
LAPACK (Working Note 41)."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls, torch
from opmark.catalogue.operators._linalg import (
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
    spread_spectrum,
    symmetric_spread_spectrum,
    uniform,
)
from opmark.plugin import Launch, ParamRule, Params
from opmark.plugin.param import flag, size
from opmark.schema import TensorSpec

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


def triangle(p: Params) -> int:
    """Return the number of elements of one half of a matrix with its diagonal."""
    return int(p["n"] * (p["n"] + 1) // 2)


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
    reads=triangle,
    backward_reads=lambda p: 2 * triangle(p),  # the factor and its gradient
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
    reads=triangle,
    backward_reads=lambda p: 2 * triangle(p) + p["n"] ** 2,  # the factor, the symmetric result and its gradient
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
    reads=lambda p: triangle(p) + p["n"] * p["k"],
    backward_reads=lambda p: triangle(p) + 2 * p["n"] * p["k"],  # of the right sides only the solution matters
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
    reads=lambda p: triangle(p) + p["n"] * p["k"],
    backward_reads=lambda p: triangle(p) + 2 * p["n"] * p["k"],  # a, b and the gradient of the product
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
    trivial=lambda p: bool(p["power"] == 1),
    aliases=("linalg_matrix_power",),
)


# Linear algebra: decompositions (qr, lq, singular values, eigenvalues) and least squares.

M = size("m", "rows of a")
COLUMNS = size("n", "columns of a")
TALL = ParamRule("m", "be at least n {n} (got {m})", lambda p: p["m"] >= p["n"])
TALL_PRESETS = {
    "small": {"batch": 8, "m": 64, "n": 32},
    "typical": {"batch": 4, "m": 256, "n": 128},
    "large": {"batch": 16, "m": 2048, "n": 512},
}

# The values themselves are off by a few roundings of the largest one. Gradients consist of singular vectors, whose
# relative errors are larger than those of the values by the ratio of a value to the gap to the next one: at the
# verified sizes 30 to 100 times for the worst of them.
VECTORS = 16.0


def geqrf(m: int, n: int) -> int:
    """Flops of Householder's factors, m >= n: 2 m n² - 2/3 n³ + m n + n² + 14/3 n."""
    return 2 * m * n**2 + m * n + n**2 + (14 * n - 2 * n**3) // 3


def orgqr(m: int, n: int) -> int:
    """Flops of the first n columns of Q from the factors: 2 m n² - 2/3 n³ + 2 n² - m n - 4/3 n."""
    return 2 * m * n**2 + 2 * n**2 - m * n - (2 * n**3 + 4 * n) // 3


def gebrd(m: int, n: int) -> int:
    """Flops of the reduction to two diagonals, m >= n: 4 m n² - 4/3 n³. Lower powers, and the iteration, are left
    out."""
    return 4 * m * n**2 - 4 * n**3 // 3


def sytrd(n: int) -> int:
    """Flops of the reduction of a symmetric matrix to three diagonals: 4/3 n³, without lower powers."""
    return -(-4 * n**3 // 3)


def _qr_backward(p: Params) -> int:
    """Count Q'dQ and R dR' (2 m n² + n³), Q times their triangle (2 m n²), a triangular system (m n²)."""
    return int(5 * p["m"] * p["n"] ** 2 + p["n"] ** 3)


def _factors(p: Params) -> int:
    return int(p["m"] * p["n"] + p["n"] ** 2)


QR = on_matrices(
    "qr",
    "orthogonal columns q[m,n] and upper triangular r[n,n] with q r = a, for each matrix",
    params=(M, COLUMNS),
    presets=TALL_PRESETS,
    rules=(TALL,),
    inputs=lambda p: {"a": rectangle(p, p["m"], p["n"], near_identity)},
    out=_factors,
    flops=lambda p: geqrf(p["m"], p["n"]) + orgqr(p["m"], p["n"]),
    backward_flops=_qr_backward,
    terms=lambda p: int(p["m"]),
    reference=lambda p, a: tuple(np.linalg.qr(a)),
    gradients=("a",),
    torch=calls("torch.linalg.qr", "a"),
    aliases=("linalg_qr",),
)


def _lq(p: Params, a: Any) -> Any:
    q, r = np.linalg.qr(np.swapaxes(a, -1, -2))
    return np.swapaxes(q, -1, -2), np.swapaxes(r, -1, -2)


def _torch_lq(p: Params, a: Any) -> Launch:
    from torch.linalg import qr

    def launch() -> Any:
        q, r = qr(a.mT)
        return q.mT, r.mT

    return launch


LQ = on_matrices(
    "lq",
    "orthogonal rows q[n,m] and lower triangular l[n,n] with l q = a, for each matrix a[n,m]",
    params=(size("m", "columns of a"), size("n", "rows of a")),
    presets=TALL_PRESETS,
    rules=(TALL,),
    inputs=lambda p: {"a": rectangle(p, p["n"], p["m"], near_identity)},
    out=_factors,
    flops=lambda p: geqrf(p["m"], p["n"]) + orgqr(p["m"], p["n"]),
    backward_flops=_qr_backward,
    terms=lambda p: int(p["m"]),
    reference=_lq,
    gradients=("a",),
    torch=torch(_torch_lq),
    aliases=("linalg_gelqf", "gelqf"),
)

SVDVALS = on_matrices(
    "svdvals",
    "singular values of each matrix, the largest first",
    params=(M, COLUMNS),
    presets=TALL_PRESETS,
    rules=(TALL,),
    inputs=lambda p: {"a": rectangle(p, p["m"], p["n"], spread_spectrum)},
    out=lambda p: p["n"],
    flops=lambda p: gebrd(p["m"], p["n"]),
    backward_flops=lambda p: 2 * p["m"] * p["n"] ** 2 + p["m"] * p["n"],  # both sets of vectors, one of them scaled
    terms=lambda p: int(p["m"]),
    reference=lambda p, a: np.linalg.svd(a, compute_uv=False),
    gradients=("a",),
    gradient_factor=VECTORS,
    torch=calls("torch.linalg.svdvals", "a"),
    aliases=("linalg_svdvals",),
)

EIGVALSH = on_matrices(
    "eigvalsh",
    "eigenvalues of each symmetric matrix, the smallest first",
    presets=SQUARES,
    inputs=lambda p: {"a": rectangle(p, p["n"], p["n"], symmetric_spread_spectrum)},
    out=lambda p: p["n"],
    flops=lambda p: sytrd(p["n"]),
    reads=triangle,
    backward_flops=lambda p: 2 * p["n"] ** 3 + p["n"] ** 2,
    backward_reads=lambda p: p["n"] ** 2 + p["n"],  # the eigenvectors, and the gradient of the values
    reference=lambda p, a: np.linalg.eigvalsh(make_symmetric(a)),
    gradients=("a",),
    gradient_factor=VECTORS,
    numpy=calls("numpy.linalg.eigvalsh", "a"),
    torch=calls("torch.linalg.eigvalsh", "a"),
    aliases=("linalg_eigvalsh",),
)


def _one_lstsq(a: Any, b: Any) -> Any:
    return np.linalg.lstsq(a, b, rcond=None)[0]


def _torch_lstsq(p: Params, a: Any, b: Any) -> Launch:
    from torch.linalg import lstsq

    # The matrices have full rank, so the QR decomposition suffices, which every device has.
    solve = partial(lstsq, a, b, driver="gels")
    return lambda: solve().solution


LSTSQ = on_matrices(
    "lstsq",
    "x[n,k] that minimizes |a[m,n] x - b[m,k]|, for each pair",
    params=(M, COLUMNS, size("k", "columns of b")),
    presets={name: {**sizes, "k": sizes["n"] // 4} for name, sizes in TALL_PRESETS.items()},
    rules=(TALL,),
    inputs=lambda p: {"a": rectangle(p, p["m"], p["n"], spread_spectrum), "b": uniform(p, p["m"], p["k"])},
    out=lambda p: p["n"] * p["k"],
    # Flops of Q and R, of Q' b (4 m n k - 2 n² k), and of a triangular system (n² k).
    flops=lambda p: geqrf(p["m"], p["n"]) + p["k"] * (4 * p["m"] * p["n"] - p["n"] ** 2),
    backward_flops=None,
    terms=lambda p: int(p["m"]),
    reference=lambda p, a, b: map_matrices(_one_lstsq, a, b),
    torch=torch(_torch_lstsq, "torch.linalg.lstsq"),
    aliases=("linalg_lstsq", "gels"),
)

DECOMPOSITION_OPERATORS = (QR, LQ, SVDVALS, EIGVALSH, LSTSQ)


OPERATORS = (
    DET,
    SLOGDET,
    INVERSE,
    SOLVE,
    CHOLESKY,
    CHOLESKY_INVERSE,
    TRIANGULAR_SOLVE,
    TRMM,
    SYRK,
    MATRIX_POWER,
    *DECOMPOSITION_OPERATORS,
)
