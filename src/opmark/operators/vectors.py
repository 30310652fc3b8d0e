"""Products of vectors and distances between them: outer, addr, inner, cross, cdist."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import calls, formula
from opmark.operators._product import product
from opmark.schema import Params, Rule, Tolerance
from opmark.schema.operator import sum_of_products
from opmark.schema.param import shape, size

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
    rules=(Rule("shape", "have a last axis of length 3 (got {shape})", lambda p: p["shape"][-1] == 3),),
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
    # Frameworks compute |x|² - 2 x y + |y|², which loses digits if the distance is small compared with |x|.
    tolerance=Tolerance(terms=lambda p: int(p["K"]), factor=4.0),
    presets={
        "small": {"M": 64, "N": 64, "K": 32},
        "typical": {"M": 1024, "N": 1024, "K": 64},
        "large": {"B": 4, "M": 8192, "N": 4096, "K": 128},
    },
    implementations=(formula(_cdist), calls("torch.cdist", "x", "y")),
)

OPERATORS = (OUTER, ADDR, INNER, CROSS, CDIST)
