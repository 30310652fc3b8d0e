"""Unusual parameters of the operators in densities.py."""

from __future__ import annotations

from typing import Any

_FEW: list[dict[str, Any]] = [{"distributions": 5, "points": 7, "log": True}, {"distributions": 3, "points": 1}]

ODD: dict[str, list[dict[str, Any]]] = {
    "random_pdf_uniform": _FEW,
    "random_pdf_normal": _FEW,
    "random_pdf_exponential": _FEW,
    "random_pdf_gamma": _FEW,
    "random_pdf_poisson": _FEW,
    "random_pdf_negative_binomial": _FEW,
    "random_pdf_generalized_negative_binomial": _FEW,
    "random_pdf_dirichlet": [
        {"distributions": 5, "points": 7, "categories": 3},
        {"distributions": 3, "points": 1, "categories": 5, "log": False},
    ],
}
