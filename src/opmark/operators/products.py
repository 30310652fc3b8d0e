"""Other products: tensordot, Kronecker and Khatri-Rao products, bilinear, and chains of three matrices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import calls, formula, numpy, torch
from opmark.operators._product import product
from opmark.registry import resolve
from opmark.schema import Launch, Params, Rule, Tolerance
from opmark.schema.dtype import FLOATS
from opmark.schema.operator import sum_of_products
from opmark.schema.param import shape, size


def _tensordot_flops(p: Params) -> int:
    return 2 * prod(p["M"]) * prod(p["N"]) * prod(p["K"])


def _tensordot(framework: str, keyword: str) -> Callable[..., Launch]:
    def build(p: Params, a: Any, b: Any) -> Launch:
        return partial(resolve(f"{framework}.tensordot"), a, b, **{keyword: len(p["K"])})

    return build


TENSORDOT = product(
    "tensordot",
    "sum of products over the last axes of a and the first of b: c[M...,N...] = a[M...,K...] b[K...,N...]",
    params=(shape("M", "first axes of a"), shape("N", "last axes of b"), shape("K", "axes that are summed")),
    shapes=lambda p: {"a": (*p["M"], *p["K"]), "b": (*p["K"], *p["N"])},
    gradients=("a", "b"),
    out=lambda p: prod(p["M"]) * prod(p["N"]),
    flops=_tensordot_flops,
    backward_flops=lambda p: 2 * _tensordot_flops(p),
    reference=lambda p, a, b: np.tensordot(a, b, len(p["K"])),
    tolerance=sum_of_products(lambda p: prod(p["K"])),
    presets={
        "small": {"M": [8, 16], "N": [16, 8], "K": [8, 16]},
        "typical": {"M": [16, 64], "N": [64, 16], "K": [16, 64]},
        "large": {"M": [64, 64], "N": [64, 64], "K": [64, 64]},
    },
    implementations=(
        numpy(_tensordot("numpy", "axes"), "numpy.tensordot"),
        torch(_tensordot("torch", "dims"), "torch.tensordot"),
    ),
)


def _khatri_rao(p: Params, a: Any, b: Any) -> Any:
    return (a[:, None, :] * b[None, :, :]).reshape(-1, p["N"])


def _khatri_rao_elements(p: Params) -> int:
    return int(p["M"] * p["L"] * p["N"])


KHATRI_RAO = product(
    "khatri_rao",
    "Khatri-Rao product: column n of c[M L,N] is the Kronecker product of column n of a[M,N] and of b[L,N]",
    params=(size("M", "rows of a"), size("L", "rows of b"), size("N", "columns of a, b and c")),
    shapes=lambda p: {"a": (p["M"], p["N"]), "b": (p["L"], p["N"])},
    gradients=("a", "b"),
    out=_khatri_rao_elements,
    flops=_khatri_rao_elements,
    backward_flops=lambda p: 4 * _khatri_rao_elements(p),  # a product and a sum for each of two gradients
    reference=_khatri_rao,
    tolerance=Tolerance(),
    presets={
        "small": {"M": 32, "L": 32, "N": 32},
        "typical": {"M": 128, "L": 128, "N": 128},
        "large": {"M": 512, "L": 512, "N": 512},
    },
    implementations=(formula(_khatri_rao), torch(lambda p, a, b: partial(_khatri_rao, p, a, b))),
)


def _kron_elements(p: Params) -> int:
    return int(p["M"] * p["N"] * p["P"] * p["Q"])


KRON = product(
    "kron",
    "Kronecker product: a block a[m,n] b[P,Q] for each element of a[M,N]",
    params=(size("M", "rows of a"), size("N", "columns of a"), size("P", "rows of b"), size("Q", "columns of b")),
    shapes=lambda p: {"a": (p["M"], p["N"]), "b": (p["P"], p["Q"])},
    gradients=("a", "b"),
    out=_kron_elements,
    flops=_kron_elements,
    backward_flops=lambda p: 4 * _kron_elements(p),
    reference=lambda p, a, b: np.kron(a, b),
    presets={
        "small": {"M": 16, "N": 16, "P": 16, "Q": 16},
        "typical": {"M": 32, "N": 32, "P": 64, "Q": 64},
        "large": {"M": 128, "N": 64, "P": 128, "Q": 128},
    },
    implementations=(calls("numpy.kron", "a", "b"), calls("torch.kron", "a", "b")),
    aliases=("kronecker",),
)


def _bilinear(p: Params, x: Any, y: Any, weight: Any, bias: Any) -> Any:
    return np.einsum("boj,bj->bo", np.einsum("bi,oij->boj", x, weight, optimize=True), y) + bias


def _bilinear_flops(p: Params) -> int:
    """Count x times every matrix of the weight (2 B O I J), the result times y (2 B O J), and the bias (B O)."""
    return int(p["B"] * p["O"] * (2 * p["I"] * p["J"] + 2 * p["J"] + 1))


def _bilinear_backward_flops(p: Params) -> int:
    """Count three sums of B O I J products for x, y and the weight, each after B O I or B O J products; and the
    bias."""
    return int(p["B"] * p["O"] * (6 * p["I"] * p["J"] + 2 * p["I"] + p["J"] + 1))


BILINEAR = product(
    "bilinear",
    "z[B,O] = x[B,I] weight[O,I,J] y[B,J] + bias[O]",
    params=(
        size("B", "rows of x and y"),
        size("O", "features out"),
        size("I", "features of x"),
        size("J", "features of y"),
    ),
    shapes=lambda p: {
        "x": (p["B"], p["I"]), "y": (p["B"], p["J"]), "weight": (p["O"], p["I"], p["J"]), "bias": (p["O"],),
    },
    gradients=("x", "y", "weight", "bias"),
    out=lambda p: p["B"] * p["O"],
    flops=_bilinear_flops,
    backward_flops=_bilinear_backward_flops,
    reference=_bilinear,
    tolerance=Tolerance(terms=lambda p: int(p["I"] * p["J"]), magnitude=lambda p: (p["I"] * p["J"] / 27) ** 0.5),
    presets={
        "small": {"B": 32, "O": 16, "I": 32, "J": 32},
        "typical": {"B": 128, "O": 64, "I": 128, "J": 128},
        "large": {"B": 1024, "O": 256, "I": 512, "J": 512},
    },
    implementations=(formula(_bilinear), calls("torch.nn.functional.bilinear", "x", "y", "weight", "bias")),
)  # fmt: skip


def _chain_flops(p: Params) -> int:
    """Count the cheaper of the two orders, which both frameworks choose."""
    i, j, k, n = p["sizes"]
    return int(2 * min(i * j * k + i * k * n, j * k * n + i * j * n))


def _chain_shapes(p: Params) -> dict[str, tuple[int, ...]]:
    i, j, k, n = p["sizes"]
    return {"a": (i, j), "b": (j, k), "c": (k, n)}


def _multi_dot(path: str) -> Callable[..., Launch]:
    def build(p: Params, **matrices: Any) -> Launch:
        return partial(resolve(path), list(matrices.values()))

    return build


MULTI_DOT = product(
    "multi_dot",
    "a chain of three products a[i,j] b[j,k] c[k,l], in the order that takes the fewest operations",
    dtypes=FLOATS,
    params=(shape("sizes", "i, j, k and l, as in 64x512x16x512"),),
    shapes=_chain_shapes,
    gradients=("a", "b", "c"),
    out=lambda p: p["sizes"][0] * p["sizes"][3],
    flops=_chain_flops,
    backward_flops=lambda p: 2 * _chain_flops(p),  # two products for each forward one
    reference=lambda p, a, b, c: np.linalg.multi_dot([a, b, c]),
    tolerance=Tolerance(
        # In 16-bit types the first product is rounded too.
        terms=lambda p: p["sizes"][1] * p["sizes"][2],
        magnitude=lambda p: (p["sizes"][1] * p["sizes"][2] / 27) ** 0.5,
    ),
    presets={
        "small": {"sizes": [64, 128, 32, 128]},
        "typical": {"sizes": [512, 1024, 256, 1024]},
        "large": {"sizes": [4096, 4096, 1024, 4096]},
    },
    rules=(Rule("sizes", "have four sizes, of three matrices (got {sizes})", lambda p: len(p["sizes"]) == 4),),
    implementations=(
        formula(lambda p, a, b, c: np.linalg.multi_dot([a, b, c])),
        torch(_multi_dot("torch.linalg.multi_dot"), "torch.linalg.multi_dot"),
    ),
    aliases=("chain_matmul", "linalg_multi_dot"),
)


OPERATORS = (TENSORDOT, KHATRI_RAO, KRON, BILINEAR, MULTI_DOT)
