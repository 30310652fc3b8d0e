"""Odd sizes; for those with options, each of them."""

from __future__ import annotations

from typing import Any

from opmark.catalogue.operators import unary
from opmark.catalogue.operators import unary as cast
from opmark.catalogue.operators import unary as rounding

ODD: dict[str, list[dict[str, Any]]] = {
    **{
        op.name: [{"shape": [5, 7]}, {"shape": [3, 1, 11]}]
        for op in (*unary.UNARY_OPERATORS, *rounding.ROUNDING_OPERATORS)
    },
    **{op.name: [{"shape": [5, 7]}] for op in cast.OPERATORS},
    "clip": [{"shape": [5, 7], "low": -0.25, "high": 0.75}, {"shape": [3, 1, 11]}],
}
