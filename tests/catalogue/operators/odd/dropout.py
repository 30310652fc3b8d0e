"""Unusual parameters of the operators in dropout.py."""

from __future__ import annotations

from typing import Any

_ELEMENTS: list[dict[str, Any]] = [{"shape": [55, 77], "p": 0.2}, {"shape": [5, 7], "p": 0.0}, {"shape": [3, 1, 11]}]
_CHANNELS: list[dict[str, Any]] = [
    {"shape": [5, 77, 3, 5], "p": 0.2},
    {"shape": [3, 33, 7], "p": 0.8},
    {"shape": [2, 9, 3, 1, 5], "p": 0.0},
]

ODD: dict[str, list[dict[str, Any]]] = {
    "dropout": _ELEMENTS,
    "alpha_dropout": _ELEMENTS,
    "dropout2d": _CHANNELS,
    "feature_alpha_dropout": _CHANNELS,
}

# It looks like one more that was dropped.
IMMUNE: dict[str, set[str]] = {"dropout": {"one element zero"}, "alpha_dropout": {"one element zero"}}
