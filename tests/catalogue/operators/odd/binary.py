"""Odd sizes, and every way to broadcast."""

from __future__ import annotations

from typing import Any

from opmark.catalogue.operators.binary import ARITHMETIC

BROADCAST: list[dict[str, Any]] = [
    {"shape": [5, 7]},
    {"shape": [3, 1, 11], "y": "row"},
    {"shape": [4, 9, 5], "y": "column"},
    {"shape": [5, 7], "y": "scalar"},
]

ODD: dict[str, list[dict[str, Any]]] = {
    **{op.name: BROADCAST for op in ARITHMETIC},
    "lerp": [{"shape": [5, 7], "weight": 0.75}, {"shape": [1]}],
    "addcmul": [{"shape": [5, 7], "value": -2.0}, {"shape": [3, 1, 11]}],
    "addcdiv": [{"shape": [5, 7], "value": -2.0}, {"shape": [3, 1, 11]}],
    "add_n": [{"shape": [5, 7], "n": 3}, {"shape": [3, 1, 11], "n": 1}, {"shape": [5], "n": 9}],
}
