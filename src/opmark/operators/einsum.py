"""einsum: products of two tensors, given by an equation."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula, torch
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec, Tolerance
from opmark.schema.cost import nbytes
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import choice, dtype, shape


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
        Rule("equation", "be three groups of letters, none twice in a group and each in two of them, as in "
             "ij-jk-ik (got {equation})", _is_equation),
        Rule("sizes", "have one size for each letter of equation {equation} (got {sizes})",
             lambda p: len(p["sizes"]) == len(letters(p["equation"]))),
    ),
    gradients=("a", "b"),
    implementations=(formula(_reference), torch(_torch, "torch.einsum")),
)  # fmt: skip

OPERATORS = (EINSUM,)
