"""Odd sizes and unusual options of normalising operators."""

from __future__ import annotations

from typing import Any

_ROWS: list[dict[str, Any]] = [{"shape": [5, 33]}, {"shape": [3, 4, 17], "eps": 0.1}, {"shape": [129, 33]}]

ODD: dict[str, list[dict[str, Any]]] = {
    "layer_norm": _ROWS,
    "rms_norm": _ROWS,
    "batch_norm": [
        {"shape": [5, 3, 7], "momentum": 0.5},
        {"shape": [5, 3, 7], "training": False},
        {"shape": [9, 4], "eps": 0.1},
        {"shape": [2, 5, 3, 3, 3]},
    ],
    "group_norm": [
        {"shape": [3, 6, 5], "groups": 2},
        {"shape": [2, 6, 3, 5], "groups": 6, "eps": 0.1},
        {"shape": [3, 12], "groups": 1},
    ],
    "instance_norm": [{"shape": [3, 5, 7]}, {"shape": [2, 3, 5, 4], "eps": 0.1}],
    "l2_normalize": [
        {"shape": [3, 4, 5]},
        {"shape": [3, 4, 5], "mode": "channel"},
        {"shape": [3, 4, 5, 2], "mode": "spatial"},
        {"shape": [3, 7], "eps": 2.0},
    ],
    "lrn": [
        {"shape": [2, 7, 5], "size": 3, "alpha": 1.5},
        {"shape": [2, 3, 5, 4], "size": 4, "alpha": 0.5, "beta": 0.3, "k": 2.0},
        {"shape": [2, 3, 5, 4], "size": 1, "alpha": 1.0},
    ],
    "weight_norm": [{"shape": [5, 7]}, {"shape": [3, 4, 5]}],
    "moments": [{"shape": [5, 7], "axes": 1}, {"shape": [4, 9, 5], "axes": 2}, {"shape": [33, 17]}],
}
