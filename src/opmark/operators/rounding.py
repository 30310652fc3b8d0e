"""Rounding to integers. These are step functions without a useful gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._pointwise import Domain, pointwise
from opmark.schema import Operator

WIDE: Domain = (-100.0, 100.0)
"""Wide enough for many integers; in a wider range, most bfloat16 values would already be integers."""


def _rounding(name: str, summary: str, aliases: Sequence[str] = (), **implementations: Any) -> Operator:
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
    _rounding("ceil", "smallest integer that is not below x"),
    _rounding("floor", "largest integer that is not above x"),
    _rounding("trunc", "x without its fraction", ("fix",)),
    _rounding("round", "nearest integer, halves to even", ("rint",)),
    _rounding("frac", "the fraction of x, with its sign", reference=lambda p, x: x - np.trunc(x)),
)
