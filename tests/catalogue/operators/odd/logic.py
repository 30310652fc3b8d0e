"""Odd sizes, and every way to broadcast."""

from __future__ import annotations

from typing import Any

from opmark.catalogue.operators.binary import LOGIC_OPERATORS

ODD: dict[str, list[dict[str, Any]]] = {
    op.name: (
        [{"shape": [5, 7]}, {"shape": [3, 1, 11], "y": "row"}, {"shape": [4, 9, 5], "y": "column"},
         {"shape": [5, 7], "y": "scalar"}]
        if "y" in op.by_name
        else [{"shape": [5, 7]}, {"shape": [3, 1, 11]}]
    )
    for op in LOGIC_OPERATORS
}  # fmt: skip
