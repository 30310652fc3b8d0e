"""Linear algebra: decompositions (qr, lq, singular values, eigenvalues) and least squares."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import calls, torch
from opmark.operators._matrices import (
    SQUARES,
    make_symmetric,
    map_matrices,
    near_identity,
    on_matrices,
    rectangle,
    spread_spectrum,
    symmetric_spread_spectrum,
    uniform,
)
from opmark.schema import Launch, Params, Rule
from opmark.schema.param import size

M = size("m", "rows of a")
COLUMNS = size("n", "columns of a")
TALL = Rule("m", "be at least n {n} (got {m})", lambda p: p["m"] >= p["n"])
TALL_PRESETS = {
    "small": {"batch": 8, "m": 64, "n": 32},
    "typical": {"batch": 4, "m": 256, "n": 128},
    "large": {"batch": 16, "m": 2048, "n": 512},
}

# Gradients consist of singular vectors, whose relative errors are larger than those of the values by the ratio of a
# value to the gap to the next one: at the verified sizes 30 to 100 times for the worst of them.
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
    factor=VECTORS,
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
    backward_flops=lambda p: 2 * p["n"] ** 3 + p["n"] ** 2,
    reference=lambda p, a: np.linalg.eigvalsh(make_symmetric(a)),
    gradients=("a",),
    factor=VECTORS,
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

OPERATORS = (QR, LQ, SVDVALS, EIGVALSH, LSTSQ)
