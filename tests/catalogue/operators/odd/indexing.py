"""Unusual cases of indexing, masks and sequences."""

from __future__ import annotations

from typing import Any

_PLACES: list[dict[str, Any]] = [
    {"shape": [5, 7], "length": 3}, {"shape": [4, 9, 5], "axis": 1, "length": 7}, {"shape": [33, 3], "length": 33},
]  # fmt: skip
_ROWS: list[dict[str, Any]] = [{"shape": [7, 5], "indices": 3}, {"shape": [4, 9, 5], "axis": 1, "indices": 9}]
_MANY: list[dict[str, Any]] = [*_ROWS, {"shape": [3, 5], "indices": 129}]
_SEQUENCES: list[dict[str, Any]] = [{"steps": 7, "batch": 5, "dim": 3}, {"steps": 33, "batch": 2, "dim": 1}]

ODD: dict[str, list[dict[str, Any]]] = {
    "hash_table": [
        {"entries": 7, "dim": 5, "batch": 3, "lookups": 4}, {"entries": 2, "dim": 3, "batch": 33, "lookups": 2},
    ],
    "index_select": _MANY,
    "take": [{"shape": [7, 5], "index_shape": [2, 3]}, {"shape": [4, 9, 5], "axis": -2, "index_shape": [3]}],
    "take_flat": [{"shape": [5, 7], "indices": 11}, {"shape": [3], "indices": 129}],
    "gather": [*_PLACES, {"shape": [3, 5], "length": 129}],
    "gather_rows": _MANY,
    "take_along_axis": _PLACES,
    "gather_nd": [
        {"shape": [5, 7, 3], "depth": 2, "indices": 11}, {"shape": [5, 7], "depth": 1, "indices": 3},
        {"shape": [5, 7], "depth": 2, "indices": 129},
    ],
    "pick": [{"shape": [5, 7]}, {"shape": [4, 9, 5], "axis": 1, "keepdims": True}],
    "scatter": _PLACES,
    "scatter_inplace": _PLACES,
    "scatter_rows_inplace": [*_ROWS, {"shape": [33, 3], "indices": 33}, {"shape": [7], "indices": 5}],
    "scatter_add": [*_PLACES, {"shape": [3, 5], "length": 129}],
    "index_add": _MANY,
    "index_add_inplace": _ROWS,
    "index_put": [{"shape": [7, 5], "indices": 3}, {"shape": [9, 2, 3], "indices": 9}],
    "index_fill": [
        {"shape": [7, 5], "indices": 3}, {"shape": [4, 9, 5], "axis": 1, "indices": 8},
        {"shape": [7, 5], "indices": 3, "value": -2.5},
    ],
    "one_hot": [{"indices": 5, "depth": 7}, {"indices": 33, "depth": 2}],
    "ravel_multi_index": [{"shape": [5, 7], "indices": 11}, {"shape": [2, 3, 4, 5], "indices": 33}],
    "unravel_index": [{"shape": [5, 7], "indices": 11}, {"shape": [2, 3, 4, 5], "indices": 33}],
    "where": [{"shape": [5, 7]}, {"shape": [3, 1, 11]}],
    "masked_fill": [{"shape": [5, 7]}, {"shape": [3, 1, 11], "value": 2.5}],
    "masked_select": [{"shape": [5, 7]}, {"shape": [3, 4, 5], "density": 0.05}],
    "sequence_mask": [*_SEQUENCES, {"steps": 5, "batch": 3, "dim": 2, "value": -1.5}],
    "sequence_last": _SEQUENCES,
    "sequence_reverse": _SEQUENCES,
}  # fmt: skip
