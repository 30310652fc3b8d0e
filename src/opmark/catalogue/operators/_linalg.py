"""Well-conditioned matrices for linear algebra, and common parts of the operators on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula
from opmark.plugin import Implementation, Operator, Params, Tolerance
from opmark.plugin.param import dtype, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import sizeof

# Frameworks have no factorisations in 16 bits.
DTYPES = ("float64", "float32")
BATCH = size("batch", "number of independent matrices", 1)
N = size("n", "rows and columns of a")
SQUARES = {
    "small": {"batch": 8, "n": 32},
    "typical": {"batch": 4, "n": 256},
    "large": {"batch": 16, "n": 1024},
}
RIGHT_SIDES = {
    "small": {"batch": 8, "n": 32, "k": 16},
    "typical": {"batch": 4, "n": 256, "k": 128},
    "large": {"batch": 16, "n": 1024, "k": 512},
}
"""Presets with k columns of b."""

Count = Callable[[Params], int]
Specs = Callable[[Params], dict[str, TensorSpec]]


def rectangle(p: Params, rows: int, columns: int, make: Callable[[Any, tuple[int, ...]], Any]) -> TensorSpec:
    """Return a batch of matrices that make(generator, shape) fills, with elements between -4 and 4."""
    dims = (p["batch"], rows, columns)
    return TensorSpec(dims, p["dtype"], -4.0, 4.0, make=lambda generator: make(generator, dims))


def uniform(p: Params, rows: int, columns: int) -> TensorSpec:
    return TensorSpec((p["batch"], rows, columns), p["dtype"])


def near_identity(generator: Any, dims: tuple[int, ...]) -> Any:
    """Return the identity plus a perturbation of norm 0.3: determinants and powers stay around 1."""
    *_, rows, columns = dims
    return np.eye(rows, columns) + generator.uniform(-0.5, 0.5, dims) / max(rows, columns) ** 0.5


def lower_triangular(generator: Any, dims: tuple[int, ...]) -> Any:
    return np.tril(near_identity(generator, dims))


def positive_definite(generator: Any, dims: tuple[int, ...]) -> Any:
    """Return a matrix times its transpose plus the identity, which has a condition number of about 2."""
    root = generator.uniform(-1.0, 1.0, dims)
    return root @ np.swapaxes(root, -1, -2) / dims[-1] + np.eye(dims[-1])


def mixed_determinants(generator: Any, dims: tuple[int, ...]) -> Any:
    """Return matrices near the identity, half of them with a negative determinant."""
    matrices = near_identity(generator, dims)
    matrices[..., 0, :] *= generator.choice((-1.0, 1.0), (*dims[:-2], 1))
    return matrices


def spread_spectrum(generator: Any, dims: tuple[int, ...], *, symmetric: bool = False) -> Any:
    """Return matrices with well separated singular values between 1 and 3: equal ones would have no derivative."""
    *batch, rows, columns = dims
    least = min(rows, columns)
    steps = (np.arange(least) + generator.uniform(0.0, 0.4, (*batch, least))) / least
    left = np.linalg.qr(generator.standard_normal((*batch, rows, least)))[0]
    right = left if symmetric else np.linalg.qr(generator.standard_normal((*batch, columns, least)))[0]
    return (left * (1 + 2 * steps)[..., None, :]) @ np.swapaxes(right, -1, -2)


def symmetric_spread_spectrum(generator: Any, dims: tuple[int, ...]) -> Any:
    return spread_spectrum(generator, dims, symmetric=True)


def make_symmetric(a: Any) -> Any:
    """Make a matrix symmetric, for functions that read one half of it: changes of either half then count alike."""
    return (a + np.swapaxes(a, -1, -2)) / 2


def map_matrices(function: Callable[..., Any], *batches: Any) -> Any:
    """Apply the function to every matrix of a batch."""
    return np.stack([function(*matrices) for matrices in zip(*batches, strict=True)])


def on_matrices(
    name: str,
    summary: str,
    *,
    inputs: Specs,
    out: Count,
    flops: Count,
    backward_flops: Count | None,
    reference: Callable[..., Any],
    torch: Implementation,
    numpy: Implementation | None = None,
    params: tuple[Any, ...] = (N,),
    presets: Any = SQUARES,
    terms: Count = lambda p: int(p["n"]),
    gradient_factor: float = 1.0,
    reads: Count | None = None,
    backward_reads: Count | None = None,
    **more: Any,
) -> Operator:
    """Make an operator on matrices. `out`, `flops` and `backward_flops` are those of one matrix.

    The backward pass reads the inputs, the outputs (which most formulas use) and their gradients. `reads` and
    `backward_reads` are the elements that one matrix, or pair, has to be read of, if not all of them.
    """

    def each(p: Params, count: Count) -> int:
        return int(p["batch"] * count(p) * sizeof(p["dtype"]))

    def cost(p: Params) -> Cost:
        read = each(p, reads) if reads else nbytes(inputs(p).values())
        return Cost(p["batch"] * flops(p), read, each(p, out))

    def backward(p: Params) -> Cost:
        assert backward_flops is not None
        whole = nbytes(inputs(p).values())
        read = each(p, backward_reads) if backward_reads else whole + 2 * each(p, out)
        return Cost(p["batch"] * backward_flops(p), read, whole)

    return Operator(
        name=name,
        summary=summary,
        category="linear algebra",
        params=(BATCH, *params, dtype(*DTYPES)),
        inputs=inputs,
        cost=cost,
        backward_cost=backward if backward_flops else None,
        reference=reference,
        presets=presets,
        tolerance=Tolerance(terms=terms, gradient_factor=gradient_factor),
        partial=reads is not None,
        implementations=(numpy or formula(reference), torch),
        **more,
    )
