"""Odd sizes and unusual options of joining and splitting."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "concat": [{"shape": [5, 7]}, {"shape": [5, 7, 2], "count": 4, "axis": 1}, {"shape": [3], "count": 1}],
    "stack": [{"shape": [5, 7]}, {"shape": [5, 7], "count": 2, "axis": -1}, {"shape": [3], "axis": 1}],
    "block_diag": [{"shape": [3, 5]}, {"shape": [1, 2], "count": 5}],
    "split": [{"shape": [5, 8], "parts": 4}, {"shape": [6, 3], "axis": 0, "parts": 3}],
    "chunk": [{"shape": [5, 7], "parts": 3}, {"shape": [5, 3], "axis": 0, "parts": 4}],
    "unbind": [{"shape": [5, 7]}, {"shape": [2, 3, 5], "axis": 1}],
    "split_copy": [{"shape": [5, 8], "parts": 4}, {"shape": [6, 3], "axis": 0, "parts": 3}],
    "meshgrid": [{"M": 5, "N": 7}, {"M": 33, "N": 2}],
}
