"""Diagonals and triangles of matrices: extracting, inserting, masking, summing."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import EXACT, reference_in_numpy
from opmark.catalogue.operators._builders import calls, formula, torch
from opmark.catalogue.operators._layout import ANY, call_with, data, moving_operator
from opmark.catalogue.operators._linalg import BATCH
from opmark.catalogue.operators.views import DIAGONAL, diagonal_length
from opmark.plugin import Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, flag, integer, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

K = integer("k", "0: the main diagonal; positive: above it", 0)
MATRIX = ParamRule("shape", "have at least 2 axes (got {shape})", lambda p: len(p["shape"]) >= 2)


def _diagonal_elements(p: Params) -> int:
    return int(prod(p["shape"][:-2]) * diagonal_length(p))


def _torch_diag(p: Params, x: Any) -> Launch:
    from torch import diag, diagonal_copy

    return (lambda: diag(x, p["k"])) if x.dim() == 2 else (lambda: diagonal_copy(x, p["k"], -2, -1))


DIAG = moving_operator(
    "diag",
    "a diagonal of each matrix, as a copy",
    params=(K,),
    rules=DIAGONAL.rules,
    out=_diagonal_elements,
    reads=_diagonal_elements,
    partial=True,
    reference=lambda p, x: np.diagonal(x, p["k"], -2, -1).copy(),
    torch=torch(_torch_diag, "torch.diag"),
    aliases=("linalg_extractdiag", "extractdiag", "diagonal_copy"),
)


def _embedded_elements(p: Params) -> int:
    return int(prod(p["shape"][:-1]) * (p["shape"][-1] + abs(p["k"])) ** 2)


def _diag_embed(p: Params, x: Any) -> Any:
    edge = x.shape[-1] + abs(p["k"])
    out = np.zeros((*x.shape[:-1], edge, edge), x.dtype)
    rows = np.arange(x.shape[-1]) + max(-p["k"], 0)
    out[..., rows, rows + p["k"]] = x
    return out


DIAG_EMBED = moving_operator(
    "diag_embed",
    "matrices with the last axis on a diagonal, and zero elsewhere",
    params=(K,),
    presets={
        "small": {"shape": [4, 128]},
        "typical": {"shape": [8, 512]},
        "large": {"shape": [32, 2048]},
    },
    out=_embedded_elements,
    gradient_view=True,
    reference=_diag_embed,
    torch=call_with("torch.diag_embed", lambda p: (p["k"],)),
    aliases=("linalg_makediag", "makediag", "diagflat"),
)


def triangle_elements(p: Params, *, upper: bool) -> int:
    """Return the number of elements of a triangle, counted row by row."""
    rows, columns = p["shape"][-2:]
    below = sum(min(max(row + p["k"] + (0 if upper else 1), 0), columns) for row in range(rows))
    return int(prod(p["shape"][:-2]) * (rows * columns - below if upper else below))


def _triangle(name: str, *, upper: bool) -> Operator:
    side = "upper" if upper else "lower"
    take = "triu" if upper else "tril"

    def reads(p: Params) -> int:
        return triangle_elements(p, upper=upper)

    return moving_operator(
        name,
        f"the {side} triangle of each matrix, and zero elsewhere",
        params=(K,),
        rules=(MATRIX,),
        reads=reads,
        backward_reads=reads,
        partial=True,
        reference=lambda p, x: getattr(np, take)(x, p["k"]),
        torch=call_with(f"torch.{take}", lambda p: (p["k"],)),
    )


TRIU = _triangle("triu", upper=True)
TRIL = _triangle("tril", upper=False)

N = size("n", "rows and columns of a matrix")
UPPER = flag("upper", "the upper triangle instead of the lower one")
PRESETS = {
    "small": {"batch": 4, "n": 128},
    "typical": {"batch": 8, "n": 512},
    "large": {"batch": 32, "n": 2048},
}


def _packed_length(p: Params) -> int:
    """Return the number of elements of a triangle with its diagonal."""
    return int(p["n"] * (p["n"] + 1) // 2)


@lru_cache(maxsize=1)
def _indices(n: int, *, upper: bool) -> Any:
    """Cached, so that a launch does not compute them."""
    return (np.triu_indices if upper else np.tril_indices)(n)


def _places(p: Params) -> Any:
    return _indices(p["n"], upper=p["upper"])


def _torch_places(p: Params, x: Any) -> Any:
    import torch as framework

    return tuple(framework.from_numpy(index).to(x.device) for index in _places(p))


def _extract_triangle(p: Params, x: Any) -> Any:
    rows, columns = _places(p)
    return x[:, rows, columns]


def _make_triangle(p: Params, x: Any) -> Any:
    rows, columns = _places(p)
    out = np.zeros((p["batch"], p["n"], p["n"]), x.dtype)
    out[:, rows, columns] = x
    return out


def _torch_extract(p: Params, x: Any) -> Launch:
    rows, columns = _torch_places(p, x)
    return lambda: x[:, rows, columns]


def _torch_make(p: Params, x: Any) -> Launch:
    rows, columns = _torch_places(p, x)

    def launch() -> Any:
        out = x.new_zeros((p["batch"], p["n"], p["n"]))
        out[:, rows, columns] = x
        return out

    return launch


def _move_cost(p: Params, read: int, written: int) -> Cost:
    nbytes = p["batch"] * sizeof(p["dtype"])
    return Cost(0, read * nbytes, written * nbytes)


EXTRACT_TRIANGLE = Operator(
    name="extract_triangle",
    summary="the elements of a triangle of each matrix, row by row, as a vector",
    category="shaping",
    params=(BATCH, N, UPPER, dtype(*ANY)),
    inputs=lambda p: {"x": data((p["batch"], p["n"], p["n"]), p["dtype"])},
    cost=lambda p: _move_cost(p, _packed_length(p), _packed_length(p)),
    backward_cost=lambda p: _move_cost(p, _packed_length(p), p["n"] ** 2),
    partial=True,
    reference=_extract_triangle,
    tolerance=EXACT,
    presets=PRESETS,
    gradients=("x",),
    implementations=(reference_in_numpy(_extract_triangle), torch(_torch_extract)),
    aliases=("linalg_extracttrian", "extracttrian"),
)

MAKE_TRIANGLE = Operator(
    name="make_triangle",
    summary="matrices with the elements of a vector in a triangle, row by row, and zero elsewhere",
    category="shaping",
    params=(BATCH, N, UPPER, dtype(*ANY)),
    inputs=lambda p: {"x": data((p["batch"], _packed_length(p)), p["dtype"])},
    cost=lambda p: _move_cost(p, _packed_length(p), p["n"] ** 2),
    backward_cost=lambda p: _move_cost(p, _packed_length(p), _packed_length(p)),
    reference=_make_triangle,
    tolerance=EXACT,
    presets=PRESETS,
    gradients=("x",),
    implementations=(reference_in_numpy(_make_triangle), torch(_torch_make)),
    aliases=("linalg_maketrian", "maketrian"),
)

SQUARE_PRESETS = {
    "small": {"n": 256},
    "typical": {"n": 2048},
    "large": {"n": 8192},
}


def _diagonal_cost(p: Params, flops: int) -> Cost:
    return Cost(flops * p["n"], p["batch"] * p["n"] * sizeof(p["dtype"]), p["batch"] * sizeof(p["dtype"]))


TRACE = Operator(
    name="trace",
    summary="sum of the diagonal of a matrix",
    category="reduction",
    params=(N, dtype(*FLOATS)),
    inputs=lambda p: {"x": TensorSpec((p["n"], p["n"]), p["dtype"])},
    cost=lambda p: Cost(p["n"], p["n"] * sizeof(p["dtype"]), sizeof(p["dtype"])),
    # The incoming gradient goes to every place of the diagonal, zero to all others.
    backward_cost=lambda p: Cost(0, sizeof(p["dtype"]), p["n"] ** 2 * sizeof(p["dtype"])),
    partial=True,
    reference=lambda p, x: np.trace(x),
    tolerance=Tolerance(terms=lambda p: int(p["n"]), magnitude=lambda p: (p["n"] / 3) ** 0.5),
    presets=SQUARE_PRESETS,
    gradients=("x",),
    implementations=(formula(lambda p, x: np.trace(x)), calls("torch.trace", "x")),
)


def _sumlogdiag(p: Params, x: Any) -> Any:
    return np.log(np.diagonal(x, 0, -2, -1)).sum(-1)


SUMLOGDIAG = Operator(
    name="sumlogdiag",
    summary="sum of the logarithms of the diagonal of each matrix",
    category="reduction",
    params=(BATCH, N, dtype(*FLOATS)),
    inputs=lambda p: {"x": TensorSpec((p["batch"], p["n"], p["n"]), p["dtype"], 0.125, 2.0)},
    cost=lambda p: _diagonal_cost(p, 2 * p["batch"]),
    backward_cost=lambda p: Cost(
        p["batch"] * p["n"],
        p["batch"] * (p["n"] + 1) * sizeof(p["dtype"]),
        p["batch"] * p["n"] ** 2 * sizeof(p["dtype"]),
    ),
    partial=True,
    reference=_sumlogdiag,
    tolerance=Tolerance(terms=lambda p: int(p["n"]), magnitude=lambda p: 0.7 * p["n"] ** 0.5),
    presets=PRESETS,
    gradients=("x",),
    implementations=(
        formula(_sumlogdiag),
        torch(lambda p, x: lambda: x.diagonal(0, -2, -1).log().sum(-1)),
    ),
    aliases=("linalg_sumlogdiag",),
)

OPERATORS = (DIAG, DIAG_EMBED, TRIU, TRIL, EXTRACT_TRIANGLE, MAKE_TRIANGLE, TRACE, SUMLOGDIAG)
