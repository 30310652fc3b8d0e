"""Unusual parameters of the operators in creation.py."""

from __future__ import annotations

from typing import Any

_SHAPES: list[dict[str, Any]] = [{"shape": [5, 7]}, {"shape": [1]}]

ODD: dict[str, list[dict[str, Any]]] = {
    "zeros": _SHAPES,
    "ones": _SHAPES,
    "full": [{"shape": [5, 7], "value": 3.0}, {"shape": [3, 1, 11], "value": 100.0}],
    "zeros_like": _SHAPES,
    "ones_like": _SHAPES,
    "full_like": [{"shape": [5, 7], "value": 3.0}, {"shape": [1]}],
    "fill": [{"shape": [5, 7], "value": 3.0}, {"shape": [1]}],
    "arange": [{"elements": 7}, {"elements": 1, "start": 5.0}, {"elements": 101, "start": 100.0, "step": -3.0}],
    "linspace": [{"elements": 7}, {"elements": 1}, {"elements": 101, "start": 3.0, "stop": -7.0}],
    "logspace": [{"elements": 7}, {"elements": 101, "start": 2.0, "stop": -2.0}],
    "eye": [{"rows": 5, "columns": 7}, {"rows": 9, "columns": 4}, {"rows": 1, "columns": 1}],
}
