"""Odd sizes, and every way to broadcast."""

from __future__ import annotations

from typing import Any

from opmark.catalogue.operators.inplace import ASSIGNMENTS, FUNCTIONS

ODD: dict[str, list[dict[str, Any]]] = {
    **{
        op.name: [{"shape": [5, 7]}, {"shape": [3, 2, 11], "y": "row"}, {"shape": [4, 9, 5], "y": "column"}]
        for op in ASSIGNMENTS
    },
    **{op.name: [{"shape": [5, 7]}, {"shape": [3, 1, 11]}] for op in FUNCTIONS},
    "clamp_": [{"shape": [5, 7], "low": -0.25, "high": 0.75}, {"shape": [3, 1, 11]}],
}
