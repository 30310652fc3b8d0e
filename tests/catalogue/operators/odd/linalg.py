"""Odd sizes and unusual options of linear algebra."""

from __future__ import annotations

from typing import Any

SQUARES: list[dict[str, Any]] = [{"batch": 3, "n": 5}, {"batch": 1, "n": 7}, {"batch": 2, "n": 33}]
TALL: list[dict[str, Any]] = [{"batch": 3, "m": 7, "n": 5}, {"m": 4, "n": 4}, {"batch": 2, "m": 33, "n": 1}]
PAIRS: list[dict[str, Any]] = [{"batch": 3, "n": 5, "k": 2}, {"n": 7, "k": 9}]

ODD: dict[str, list[dict[str, Any]]] = {
    **dict.fromkeys(("det", "inverse", "cholesky", "cholesky_inverse", "eigvalsh"), SQUARES),
    "slogdet": [{"batch": 16, "n": 5}, {"n": 7}],
    **dict.fromkeys(("qr", "lq", "svdvals"), TALL),
    **dict.fromkeys(("solve", "syrk"), PAIRS),
    "triangular_solve": [{**PAIRS[0], "upper": True}, *PAIRS],
    "trmm": [{**PAIRS[0], "upper": True}, *PAIRS],
    "matrix_power": [{"batch": 3, "n": 5, "power": 7}, {"n": 7, "power": 2}, {"n": 3, "power": 1}],
    "lstsq": [{"batch": 3, "m": 7, "n": 5, "k": 2}, {"m": 9, "n": 9, "k": 1}],
}

# The gradient of a symmetric matrix is symmetric.
IMMUNE: dict[str, set[str]] = {"cholesky": {"transposed"}, "eigvalsh": {"transposed"}}
