"""Whole numbers near x. They are steps: without a gradient that says anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._pointwise import Domain, pointwise
from opmark.schema import Operator

WIDE: Domain = (-100.0, 100.0)
"""So that there are many whole numbers to choose from; of more, bfloat16 has few that are not whole."""


def _rounds(name: str, summary: str, aliases: Sequence[str] = (), **implementations: Any) -> Operator:
    return pointwise(
        name,
        summary,
        torch=f"torch.{name}",
        domains=(WIDE,),
        gradients=(),
        aliases=aliases,
        **(implementations or {"numpy": f"numpy.{name}"}),
    )


OPERATORS = (
    _rounds("ceil", "smallest whole number that is not below x"),
    _rounds("floor", "largest whole number that is not above x"),
    _rounds("trunc", "x without its fraction", ("fix",)),
    _rounds("round", "nearest whole number; of two, the even one", ("rint",)),
    _rounds("frac", "the fraction of x, with its sign", reference=lambda p, x: x - np.trunc(x)),
)
