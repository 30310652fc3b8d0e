"""Odd cases of im2col and col2im."""

from __future__ import annotations

from typing import Any

_CASES: list[dict[str, Any]] = [
    {"batch": 2, "channels": 3, "image": [7, 9], "kernel": [2, 3], "stride": 2, "padding": 2, "dilation": 2},
    {"batch": 1, "channels": 2, "image": [5, 4], "kernel": [5, 4], "padding": 0},
    {"batch": 1, "channels": 2, "image": [6, 4], "kernel": [1, 1], "padding": 0, "stride": 3},
]

ODD: dict[str, list[dict[str, Any]]] = {"im2col": _CASES, "col2im": _CASES[:2]}
