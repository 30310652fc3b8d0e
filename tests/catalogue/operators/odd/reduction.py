"""Unusual cases of reductions, scans and sorting."""

from __future__ import annotations

from typing import Any

_KEPT: list[dict[str, Any]] = [
    {"shape": [5, 7]}, {"shape": [4, 9, 5], "axis": 1, "keepdims": True}, {"shape": [129, 33], "axis": 0},
]  # fmt: skip
_ALONG: list[dict[str, Any]] = [{"shape": [5, 7]}, {"shape": [4, 9, 5], "axis": 1}, {"shape": [129, 33], "axis": 0}]
_SPREAD = [*_KEPT, {"shape": [6, 3], "correction": 0}]

_KEEPING = (
    "reduce_mean", "prod", "nansum", "nanmean", "nanprod", "logsumexp", "reduce_max", "reduce_min", "amax", "amin",
    "argmax", "argmin", "median", "any", "all",
)  # fmt: skip

ODD: dict[str, list[dict[str, Any]]] = {
    **dict.fromkeys(_KEEPING, _KEPT),
    **dict.fromkeys(("var", "std"), _SPREAD),
    "norm": [*_KEPT, {"shape": [5, 7], "ord": 1}],
    "count_nonzero": _ALONG,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "diff"), _ALONG),
    "sort": [{"shape": [5, 7]}, {"shape": [4, 9, 5], "axis": 1, "descending": True}],
    "argsort": [{"shape": [5, 7]}, {"shape": [4, 9, 5], "axis": 1, "descending": True}],
    "kthvalue": [{"shape": [5, 7], "k": 3}, {"shape": [4, 9, 5], "k": 9, "axis": 1, "keepdims": True}],
    "all_finite": [{"shape": [5, 7]}],
    "multi_all_finite": [{"shape": [5, 7], "tensors": 3}],
    "multi_sum_sq": [{"shape": [5, 7], "tensors": 3}, {"shape": [33], "tensors": 1}],
    "unique": [{"shape": [5, 7], "repeats": 3}, {"shape": [33], "repeats": 33, "inverse": True, "counts": True}],
    "nonzero": [{"shape": [5, 7]}, {"shape": [3, 4, 5], "density": 0.05}],
    "searchsorted": [{"entries": 7, "values": 33}, {"entries": 33, "values": 5, "right": True}],
    "bincount": [{"values": 33, "bins": 5}],
    "histogram": [{"shape": [5, 7], "bins": 3}, {"shape": [33], "bins": 1}],
    "isin": [{"shape": [5, 7], "candidates": 3}, {"shape": [33], "candidates": 100}],
}  # fmt: skip
