"""Odd sizes and unusual options of matrix products."""

from __future__ import annotations

from typing import Any

PRODUCT = {"M": 5, "N": 7, "K": 3}

ODD: dict[str, list[dict[str, Any]]] = {
    "grouped_gemm": [{"M": [5, 1, 3], "N": 7, "K": 3}, {"M": [9], "N": 1, "K": 33}],
    "grouped_gemm_mixed": [{"M": [5, 1, 3], "N": [7, 2, 1], "K": [3, 9, 33]}, {"M": [9], "N": [1], "K": [33]}],
    "gemv": [{"M": 5, "K": 7}, {"M": 1, "K": 129}, {"M": 33, "K": 1}],
    "addmv": [{"M": 5, "K": 7}, {"M": 33, "K": 129}],
    "linear": [PRODUCT, {"M": 1, "N": 33, "K": 129}],
    "linear_no_bias": [PRODUCT, {"M": 1, "N": 33, "K": 129}],
    "addmm": [{**PRODUCT, "alpha": 0.5, "beta": -2.0}, {"M": 17, "N": 33, "K": 129}],
    "baddbmm": [{"B": 3, **PRODUCT, "alpha": 0.5, "beta": -2.0}, {"B": 1, "M": 17, "N": 33, "K": 129}],
}
