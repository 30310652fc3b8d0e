"""Unusual parameters of the operators in shuffling.py."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "randperm": [{"elements": 777}, {"elements": 64}],
    "shuffle": [{"shape": [555, 3]}, {"shape": [77, 3, 5]}, {"shape": [99]}],
}
