"""Unusual parameters of the operators in sampling.py."""

from __future__ import annotations

from typing import Any

_FEW: list[dict[str, Any]] = [{"distributions": 5, "draws": 7777}, {"distributions": 1, "draws": 64}]

ODD: dict[str, list[dict[str, Any]]] = {
    "random_uniform": [{"shape": [155, 177], "low": -3.0, "high": 5.0}, {"shape": [64]}],
    "random_normal": [{"shape": [155, 177], "mean": 3.0, "std": 0.5}, {"shape": [3, 1, 33]}],
    "random_exponential": [{"shape": [155, 177], "rate": 3.0}, {"shape": [64]}],
    "random_gamma": [{"shape": [155, 177], "alpha": 0.7, "scale": 3.0}, {"shape": [3, 1, 33]}],
    "random_poisson": [{"shape": [155, 177], "rate": 0.3}, {"shape": [3, 1, 33], "rate": 50.0}],
    "random_negative_binomial": [{"shape": [155, 177], "k": 1.0, "prob": 0.2}, {"shape": [77]}],
    "random_generalized_negative_binomial": [{"shape": [155, 177], "mu": 5.0, "alpha": 0.3}, {"shape": [77]}],
    "sample_uniform": _FEW,
    "sample_normal": _FEW,
    "sample_exponential": _FEW,
    "sample_gamma": _FEW,
    "sample_poisson": _FEW,
    "sample_negative_binomial": _FEW,
    "sample_generalized_negative_binomial": _FEW,
    "random_randint": [{"shape": [155, 177], "low": 3, "high": 10}, {"shape": [65], "low": 0, "high": 2}],
    "bernoulli": [{"shape": [155, 177]}, {"shape": [64]}],
    "multinomial": [{"rows": 3, "categories": 5, "draws": 7777}, {"rows": 1, "categories": 2, "draws": 65}],
}

_ORDER = {"off by one element"}  # any order is as likely as any other
_ZERO = {"one element zero"}  # zero is a value like others

IMMUNE: dict[str, set[str]] = {
    **{name: _ORDER | _ZERO for name in ODD if name.startswith("random_")},
    # Neighbours have different parameters, so that order matters.
    **{name: _ZERO for name in ODD if name.startswith("sample_") and name != "sample_uniform"},
    "bernoulli": _ZERO,
    "multinomial": _ORDER,
}
