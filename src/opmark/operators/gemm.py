"""Matrix products: matmul, batched_matmul."""

from __future__ import annotations

from opmark.operators._build import calls
from opmark.schema import Cost, Operator, Params, TensorSpec
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.operator import sum_of_products
from opmark.schema.param import dtype, size

MNK = (size("M", "rows of a and c"), size("N", "columns of b and c"), size("K", "columns of a, rows of b"))
TERMS = sum_of_products(lambda p: int(p["K"]))


def _matrices(p: Params, *batch: int) -> dict[str, TensorSpec]:
    return {
        "a": TensorSpec((*batch, p["M"], p["K"]), p["dtype"]),
        "b": TensorSpec((*batch, p["K"], p["N"]), p["dtype"]),
    }


def _product(p: Params, batch: int = 1) -> Cost:
    m, n, k, nbytes = p["M"], p["N"], p["K"], batch * sizeof(p["dtype"])
    return Cost(2 * batch * m * n * k, (m * k + k * n) * nbytes, m * n * nbytes)


def _product_backward(p: Params, batch: int = 1) -> Cost:
    """Two products of the same size; reads a, b and the gradient of c, writes the gradients of a and b."""
    forward = _product(p, batch)
    return Cost(2 * forward.flops, forward.bytes_read + forward.bytes_written, forward.bytes_read)


MATMUL = Operator(
    name="matmul",
    summary="matrix product c[M,N] = a[M,K] b[K,N]",
    category="gemm",
    params=(*MNK, dtype(*FLOATS)),
    inputs=_matrices,
    cost=_product,
    backward_cost=_product_backward,
    reference=lambda p, a, b: a @ b,
    tolerance=TERMS,
    presets={
        "small": {"M": 128, "N": 128, "K": 128},
        "typical": {"M": 1024, "N": 1024, "K": 1024},
        "large": {"M": 4096, "N": 4096, "K": 4096},
    },
    gradients=("a", "b"),
    implementations=(calls("numpy.matmul", "a", "b"), calls("torch.matmul", "a", "b")),
    aliases=("gemm", "mm", "dot"),
)

BATCHED_MATMUL = Operator(
    name="batched_matmul",
    summary="B independent matrix products c[B,M,N] = a[B,M,K] b[B,K,N]",
    category="gemm",
    params=(size("B", "number of products"), *MNK, dtype(*FLOATS)),
    inputs=lambda p: _matrices(p, p["B"]),
    cost=lambda p: _product(p, p["B"]),
    backward_cost=lambda p: _product_backward(p, p["B"]),
    reference=lambda p, a, b: a @ b,
    tolerance=TERMS,
    presets={
        "small": {"B": 8, "M": 64, "N": 64, "K": 64},
        "typical": {"B": 32, "M": 256, "N": 256, "K": 128},
        "large": {"B": 64, "M": 1024, "N": 1024, "K": 256},
    },
    gradients=("a", "b"),
    implementations=(calls("numpy.matmul", "a", "b"), calls("torch.bmm", "a", "b")),
    aliases=("batch_gemm", "bmm", "batch_dot"),
)

OPERATORS = (MATMUL, BATCHED_MATMUL)
