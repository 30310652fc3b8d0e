"""Odd sizes and unusual options of softmax and its kin, and of gated units."""

from __future__ import annotations

from typing import Any

_ALONG: list[dict[str, Any]] = [{"shape": [5, 7]}, {"shape": [4, 9, 5], "axis": 1}]

ODD: dict[str, list[dict[str, Any]]] = {
    "softmax": [*_ALONG, {"shape": [3, 1000]}, {"shape": [513, 5], "axis": 0}],
    "log_softmax": [*_ALONG, {"shape": [513, 5], "axis": 0}],
    "softmin": [*_ALONG],
    "masked_softmax": [*_ALONG, {"shape": [33, 3], "axis": 0}],
    "glu": [{"shape": [5, 6]}, {"shape": [2, 3, 14]}],
    "swiglu": [{"shape": [5, 6]}, {"shape": [2, 3, 14]}],
    "geglu": [{"shape": [5, 6]}, {"shape": [2, 3, 14]}],
    "reglu": [{"shape": [5, 6]}, {"shape": [2, 3, 14]}],
}
