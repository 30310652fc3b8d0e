"""Odd sizes and unusual options of products of other kinds."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "outer": [{"M": 5, "N": 7}, {"M": 1, "N": 33}],
    "addr": [{"M": 5, "N": 7}, {"M": 33, "N": 1}],
    "inner": [{"B": 5, "K": 7}, {"B": 1, "K": 129}],
    "tensordot": [{"M": [5], "N": [7], "K": [3, 2]}, {"M": [2, 3], "N": [1, 5, 2], "K": [9]}],
    "khatri_rao": [{"M": 5, "L": 3, "N": 7}, {"M": 1, "L": 9, "N": 2}],
    "kron": [{"M": 2, "N": 3, "P": 5, "Q": 7}, {"M": 1, "N": 9, "P": 3, "Q": 1}],
    "bilinear": [{"B": 5, "O": 3, "I": 7, "J": 2}, {"B": 1, "O": 2, "I": 1, "J": 17}],
    "multi_dot": [{"sizes": [5, 7, 3, 2]}, {"sizes": [2, 3, 7, 5]}, {"sizes": [33, 2, 33, 2]}],
    "cross": [{"shape": [5, 3]}, {"shape": [2, 7, 3]}, {"shape": [3]}],
    "cdist": [{"M": 5, "N": 7, "K": 3}, {"B": 3, "M": 33, "N": 29, "K": 5}],
    "einsum": [
        {"equation": "bhqd-bhkd-bhqk", "sizes": [2, 3, 5, 4, 7]},
        {"equation": "bhqk-bhkd-bhqd", "sizes": [2, 3, 5, 4, 7]},
        {"equation": "bsd-dhk-bshk", "sizes": [2, 5, 6, 3, 4]},
        {"equation": "bshk-hkd-bsd", "sizes": [2, 5, 3, 4, 6]},
        {"equation": "ij-jk-ik", "sizes": [5, 3, 7]},
        {"equation": "ij-kj-ik", "sizes": [5, 3, 7]},
        {"equation": "bij-bjk-bik", "sizes": [2, 5, 3, 7]},
        {"equation": "bi-bj-bij", "sizes": [3, 5, 7]},
        {"equation": "bi-bi-b", "sizes": [5, 7]},
        {"equation": "bij-bj-bi", "sizes": [3, 5, 7]},
        {"equation": "bi-b-bi", "sizes": [5, 7]},
        {"equation": "ijk-klj-il", "sizes": [5, 3, 2, 7]},
        {"equation": "ij-ij-j", "sizes": [5, 7]},
    ],
}
