"""Odd sizes and unusual options of views."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "reshape": [{"shape": [6, 5], "target": [2, 15]}, {"shape": [12], "target": [2, 1, 6]}],
    "flatten": [{"shape": [3, 5, 7]}, {"shape": [2, 1]}],
    "expand_dims": [{"shape": [5, 7], "axis": 1}, {"shape": [5, 7], "axis": -1}, {"shape": [5], "axis": 1}],
    "squeeze": [{"shape": [5, 7, 1]}, {"shape": [1, 7, 3], "axis": 0}],
    "swapaxes": [{"shape": [5, 7]}, {"shape": [2, 3, 5], "axis1": 0, "axis2": -1}],
    "permute": [{"shape": [5, 7], "axes": [1, 0]}, {"shape": [2, 3, 5], "axes": [2, 0, 1]}, {"shape": [2, 3, 5]}],
    "slice": [{"shape": [5, 7], "begin": 1, "end": 6, "step": 2}, {"shape": [9, 2], "axis": 0, "begin": 0, "end": 9}],
    "narrow": [{"shape": [5, 7], "start": 2, "length": 3}, {"shape": [9, 2], "axis": 0, "length": 4}],
    "select": [{"shape": [5, 7], "index": 3}, {"shape": [5, 3, 2], "axis": 1}],
    "diagonal": [{"shape": [5, 7]}, {"shape": [2, 5, 7], "k": 2}, {"shape": [7, 5], "k": -3}],
    "broadcast_to": [
        {"shape": [5, 1], "target": [5, 7]},
        {"shape": [7], "target": [2, 3, 7]},
        {"shape": [5, 7], "target": [5, 7]},
    ],
    "unfold": [{"shape": [3, 11], "length": 4, "step": 2}, {"shape": [9, 2], "axis": 0, "length": 2, "step": 3}],
    "as_strided": [
        {"shape": [5, 7], "size": [3, 4], "strides": [7, 2], "offset": 1},
        {"shape": [20], "size": [4, 6], "strides": [2, 1]},
        {"shape": [5], "size": [3, 5], "strides": [0, 1]},
    ],
}
