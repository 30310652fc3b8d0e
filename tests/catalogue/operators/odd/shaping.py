"""Odd sizes and unusual options of operators that move data."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "transpose": [{"shape": [5, 7], "axes": [1, 0]}, {"shape": [2, 3, 5], "axes": [1, 2, 0]}, {"shape": [3, 1, 5, 2]}],
    "flip": [{"shape": [5, 7]}, {"shape": [4, 3, 2], "axis": 1}],
    "roll": [{"shape": [5, 7], "shift": 3}, {"shape": [5, 7], "shift": -12, "axis": 0}],
    "rot90": [{"shape": [5, 7]}, {"shape": [2, 5, 7], "k": 2}, {"shape": [5, 7], "k": -1}],
    "tile": [{"shape": [5, 7]}, {"shape": [5, 7], "reps": [3]}, {"shape": [7], "reps": [2, 1, 3]}],
    "repeat": [{"shape": [5, 7], "repeats": 3}, {"shape": [5, 7], "repeats": 2, "axis": 0}],
    "broadcast_copy": [{"shape": [5, 1], "target": [5, 7]}, {"shape": [7], "target": [2, 3, 7]}],
    "depth_to_space": [{"shape": [2, 8, 3, 5]}, {"shape": [1, 18, 2, 3], "block": 3, "order": "dcr"}],
    "space_to_depth": [{"shape": [2, 3, 4, 6]}, {"shape": [1, 2, 6, 3], "block": 3, "order": "dcr"}],
    "channel_shuffle": [{"shape": [2, 12, 3, 5]}, {"shape": [1, 6, 2, 1], "groups": 3}],
    "shape_array": [{"shape": [5, 7]}],
    "size_array": [{"shape": [5, 7]}],
    "pad": [
        {"shape": [5, 7], "before": [0, 2], "after": [3, 0], "value": 0.5},
        {"shape": [2, 3, 5, 7], "before": [2, 1], "after": [0, 3], "mode": "reflect"},
        {"shape": [2, 3, 5], "before": [4], "after": [1], "mode": "replicate"},
        {"shape": [3, 4, 5, 2], "before": [2, 1, 2], "after": [1, 1, 0], "mode": "circular"},
        {"shape": [7], "before": [2], "after": [0]},
    ],
}
