"""Odd sizes and unusual options of diagonals and triangles."""

from __future__ import annotations

from typing import Any

MATRICES: list[dict[str, Any]] = [{"shape": [5, 7]}, {"shape": [2, 7, 5], "k": -2}, {"shape": [5, 7], "k": 3}]
PACKED: list[dict[str, Any]] = [{"batch": 2, "n": 5}, {"n": 7, "upper": True}, {"batch": 3, "n": 1}]

ODD: dict[str, list[dict[str, Any]]] = {
    **dict.fromkeys(("diag", "triu", "tril"), MATRICES),
    "diag_embed": [{"shape": [3, 5]}, {"shape": [5], "k": 2}, {"shape": [2, 3], "k": -1}],
    **dict.fromkeys(("extract_triangle", "make_triangle"), PACKED),
    "trace": [{"n": 5}, {"n": 33}],
    "sumlogdiag": [{"batch": 3, "n": 5}, {"n": 33}],
}
