"""Other products: tensordot, Kronecker and Khatri-Rao products, bilinear, chains of three matrices, and products of
vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls, formula, numpy, product, torch
from opmark.plugin import Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.operator import sum_of_products
from opmark.plugin.param import choice, dtype, shape, size
from opmark.plugin.registry import resolve
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS, sizeof


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
    rules=(ParamRule("sizes", "have four sizes, of three matrices (got {sizes})", lambda p: len(p["sizes"]) == 4),),
    implementations=(
        formula(lambda p, a, b, c: np.linalg.multi_dot([a, b, c])),
        torch(_multi_dot("torch.linalg.multi_dot"), "torch.linalg.multi_dot"),
    ),
    aliases=("chain_matmul", "linalg_multi_dot"),
)


# einsum: products of two tensors, given by an equation.


def letters(equation: str) -> str:
    """Return each letter once, in the order of appearance, which is the order of `sizes`."""
    return "".join(dict.fromkeys(equation.replace("-", "")))


def _terms(p: Params) -> list[str]:
    """Return the letters of a, b and the result."""
    return str(p["equation"]).split("-")


def _is_equation(p: Params) -> bool:
    """Return whether the equation is valid. A letter that only one of the three has would be a sum, not a product."""
    terms = _terms(p)
    return (
        len(terms) == 3
        and all(term.isascii() and term.isalpha() and len(set(term)) == len(term) for term in terms)
        and all(sum(letter in term for term in terms) >= 2 for letter in letters(p["equation"]))
    )


def _dims(p: Params, term: str) -> tuple[int, ...]:
    sizes = dict(zip(letters(p["equation"]), p["sizes"], strict=True))
    return tuple(sizes[letter] for letter in term)


def _inputs(p: Params) -> dict[str, TensorSpec]:
    a, b, _ = _terms(p)
    return {"a": TensorSpec(_dims(p, a), p["dtype"]), "b": TensorSpec(_dims(p, b), p["dtype"])}


def _flops(p: Params, out: str) -> int:
    """Count a product for every combination of letters, and a sum if a letter is not in the result."""
    summed = set(letters(p["equation"])) - set(out)
    return prod(p["sizes"]) * (2 if summed else 1)


def _cost(p: Params) -> Cost:
    out = _terms(p)[2]
    return Cost(_flops(p, out), nbytes(_inputs(p).values()), prod(_dims(p, out)) * sizeof(p["dtype"]))


def _backward(p: Params) -> Cost:
    """Each gradient is a product of the incoming one and the other input."""
    a, b, _ = _terms(p)
    forward = _cost(p)
    read = forward.bytes_read + forward.bytes_written
    return Cost(_flops(p, a) + _flops(p, b), read, forward.bytes_read)


def _count_terms(p: Params) -> int:
    """Return the number of products that are added up for one element of the result."""
    return prod(p["sizes"]) // prod(_dims(p, _terms(p)[2]))


def _framework_equation(p: Params) -> str:
    """Return the equation as frameworks write it."""
    return "{},{}->{}".format(*_terms(p))


def _reference(p: Params, a: Any, b: Any) -> Any:
    return np.einsum(_framework_equation(p), a, b, optimize=True)


def _torch(p: Params, a: Any, b: Any) -> Launch:
    from torch import einsum

    return partial(einsum, _framework_equation(p), a, b)


EINSUM = Operator(
    name="einsum",
    summary="sums of products of two tensors, by an equation",
    category="gemm",
    params=(
        # Without a comma, which separates values on a command line.
        choice("equation", "letters of a, of b and of the result: bhqd-bhkd-bhqk is bhqd,bhkd->bhqk, the scores of "
               "attention; bhqk-bhkd-bhqd its result, bij-bjk-bik products of matrices, ij-kj-ik a linear layer, "
               "bi-bj-bij outer products, bi-bi-b inner ones", (), "bhqd-bhkd-bhqk"),
        shape("sizes", "size of each letter of the equation, in the order in which they first appear"),
        dtype(*FLOATS),
    ),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward,
    reference=_reference,
    tolerance=Tolerance(terms=_count_terms, magnitude=lambda p: _count_terms(p) ** 0.5 / 3),
    presets={
        "small": {"sizes": [2, 4, 64, 32, 64]},
        "typical": {"sizes": [2, 16, 256, 64, 256]},
        "large": {"sizes": [8, 16, 1024, 128, 1024]},
    },
    rules=(
        ParamRule("equation", "be three groups of letters, none twice in a group and each in two of them, as in "
             "ij-jk-ik (got {equation})", _is_equation),
        ParamRule("sizes", "have one size for each letter of equation {equation} (got {sizes})",
             lambda p: len(p["sizes"]) == len(letters(p["equation"]))),
    ),
    gradients=("a", "b"),
    implementations=(formula(_reference), torch(_torch, "torch.einsum")),
)  # fmt: skip


# Products of vectors and distances between them: outer, addr, inner, cross, cdist.

OUTER_PRESETS = {
    "small": {"M": 256, "N": 256},
    "typical": {"M": 2048, "N": 2048},
    "large": {"M": 8192, "N": 8192},
}
OUTER_PARAMS = (size("M", "elements of x, rows of the result"), size("N", "elements of y, columns of the result"))

OUTER = product(
    "outer",
    "outer product of two vectors: z[M,N] = x[M] y[N]",
    params=OUTER_PARAMS,
    shapes=lambda p: {"x": (p["M"],), "y": (p["N"],)},
    gradients=("x", "y"),
    out=lambda p: p["M"] * p["N"],
    flops=lambda p: p["M"] * p["N"],
    backward_flops=lambda p: 4 * p["M"] * p["N"],  # a product of the gradient with either vector
    reference=lambda p, x, y: np.outer(x, y),
    presets=OUTER_PRESETS,
    implementations=(calls("numpy.outer", "x", "y"), calls("torch.outer", "x", "y")),
    aliases=("ger",),
)

ADDR = product(
    "addr",
    "c[M,N] + x[M] y[N]: a matrix and an outer product",
    params=OUTER_PARAMS,
    shapes=lambda p: {"c": (p["M"], p["N"]), "x": (p["M"],), "y": (p["N"],)},
    gradients=("x", "y"),
    out=lambda p: p["M"] * p["N"],
    flops=lambda p: 2 * p["M"] * p["N"],
    backward_flops=lambda p: 4 * p["M"] * p["N"],
    reference=lambda p, c, x, y: c + np.outer(x, y),
    presets=OUTER_PRESETS,
    implementations=(formula(lambda p, c, x, y: c + np.outer(x, y)), calls("torch.addr", "c", "x", "y")),
)

INNER = product(
    "inner",
    "inner product of each row of x with the same row of y: z[B] = sum over K of x[B,K] y[B,K]",
    params=(size("B", "number of rows"), size("K", "elements of a row")),
    shapes=lambda p: {"x": (p["B"], p["K"]), "y": (p["B"], p["K"])},
    gradients=("x", "y"),
    out=lambda p: p["B"],
    flops=lambda p: 2 * p["B"] * p["K"],
    backward_flops=lambda p: 2 * p["B"] * p["K"],
    reference=lambda p, x, y: np.einsum("bk,bk->b", x, y),
    tolerance=sum_of_products(lambda p: int(p["K"])),
    presets={
        "small": {"B": 64, "K": 512},
        "typical": {"B": 1024, "K": 2048},
        "large": {"B": 8192, "K": 8192},
    },
    implementations=(formula(lambda p, x, y: np.einsum("bk,bk->b", x, y)), calls("torch.linalg.vecdot", "x", "y")),
    aliases=("vdot", "vecdot", "linalg_vecdot", "inner_product"),
)

CROSS = product(
    "cross",
    "cross product of vectors of three elements, along the last axis",
    params=(shape("shape", "shape of x and y; the last axis has length 3"),),
    shapes=lambda p: {"x": p["shape"], "y": p["shape"]},
    gradients=("x", "y"),
    out=lambda p: prod(p["shape"]),
    flops=lambda p: 3 * prod(p["shape"]),  # two products and a difference for each element
    backward_flops=lambda p: 6 * prod(p["shape"]),  # two cross products
    reference=lambda p, x, y: np.cross(x, y),
    # In a difference of two products that nearly cancel, their absolute error remains.
    tolerance=Tolerance(magnitude=lambda _: 0.5),
    presets={
        "small": {"shape": [4096, 3]},
        "typical": {"shape": [1 << 20, 3]},
        "large": {"shape": [1 << 24, 3]},
    },
    rules=(ParamRule("shape", "have a last axis of length 3 (got {shape})", lambda p: p["shape"][-1] == 3),),
    implementations=(formula(lambda p, x, y: np.cross(x, y)), calls("torch.linalg.cross", "x", "y")),
    aliases=("linalg_cross",),
)


def _cdist(p: Params, x: Any, y: Any) -> Any:
    from scipy.spatial.distance import cdist

    return np.stack([cdist(one, other) for one, other in zip(x, y, strict=True)])


CDIST = product(
    "cdist",
    "Euclidean distance of every row of x[B,M,K] from every row of y[B,N,K]",
    dtypes=("float64", "float32"),
    params=(
        size("B", "number of batches", 1),
        size("M", "rows of x"),
        size("N", "rows of y"),
        size("K", "elements of a row"),
    ),
    shapes=lambda p: {"x": (p["B"], p["M"], p["K"]), "y": (p["B"], p["N"], p["K"])},
    gradients=("x", "y"),
    out=lambda p: p["B"] * p["M"] * p["N"],
    # Difference, square and sum for each pair of elements, and one root.
    flops=lambda p: p["B"] * p["M"] * p["N"] * (3 * p["K"] + 1),
    # The difference, scaled by gradient over distance, is added to both gradients.
    backward_flops=lambda p: p["B"] * p["M"] * p["N"] * (4 * p["K"] + 1),
    reference=_cdist,
    # Frameworks compute |x|² - 2 x y + |y|², which loses digits if the distance is small compared with |x|: at these
    # sizes it is larger. The gradient divides differences, which are smaller, by it.
    tolerance=Tolerance(terms=lambda p: int(p["K"]), gradient_factor=4.0),
    presets={
        "small": {"M": 64, "N": 64, "K": 32},
        "typical": {"M": 1024, "N": 1024, "K": 64},
        "large": {"B": 4, "M": 8192, "N": 4096, "K": 128},
    },
    implementations=(formula(_cdist), calls("torch.cdist", "x", "y")),
)


OPERATORS = (
    TENSORDOT,
    KHATRI_RAO,
    KRON,
    BILINEAR,
    MULTI_DOT,
    EINSUM,
    OUTER,
    ADDR,
    INNER,
    CROSS,
    CDIST,
)
