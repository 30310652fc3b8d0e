"""Embedding tables: which rows are looked up, and how many a bag.

Rows are drawn uniformly or by Zipf's law. How many a bag has is fixed, or drawn from the parameters alone: the cost
then counts what really is looked up, and offsets are the same for every seed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from opmark.operators import _numpy as np
from opmark.schema import Param, Params, Rule, TensorSpec
from opmark.schema.param import choice, real, size

# Knuth's multiplier, a prime: it spreads the popular rows over the table, as they lie in practice.
_PRIME = 2654435761

LOOKUPS: tuple[Param, ...] = (
    size("rows", "rows of a table"),
    size("dim", "elements of a row"),
    size("bags", "bags, each of which gives a row of the result"),
    size("pooling", "rows a bag, on the average"),
    choice("lengths", "every bag has as many rows, or from 1 to 2 pooling - 1 of them", ("fixed", "random"), "fixed"),
    choice("distribution", "which rows are looked up: all alike, or a few of them most of the time",
           ("uniform", "zipf"), "uniform"),
    real("alpha", "zipf: the k-th most popular row is looked up k^-alpha times as often as the first", 1.05,
         kind="amount"),
)  # fmt: skip
SPREADABLE = Rule("rows", f"be below {_PRIME} (got {{rows}})", lambda p: p["rows"] < _PRIME)


@lru_cache(maxsize=64)
def _lengths(bags: int, pooling: int, kind: str) -> Any:
    if kind == "fixed":
        return np.full(bags, pooling)
    return np.random.default_rng((bags, pooling)).integers(1, 2 * pooling, bags)


def lengths(p: Params, tables: int = 1) -> Any:
    """Rows of each bag; of all tables, one after the other."""
    return _lengths(p["bags"] * tables, p["pooling"], p["lengths"])


def lookups(p: Params, tables: int = 1) -> int:
    """Rows that are looked up in all."""
    if p["lengths"] == "fixed":
        return int(p["bags"] * tables * p["pooling"])
    return int(lengths(p, tables).sum())


def longest(p: Params) -> int:
    return int(p["pooling"] if p["lengths"] == "fixed" else 2 * p["pooling"] - 1)


def offsets(p: Params, tables: int = 1) -> Any:
    """Where each bag begins."""
    ends = np.cumsum(lengths(p, tables))
    return ends - lengths(p, tables)


def bag_of(p: Params) -> Any:
    """The bag of each lookup; a framework knows it from the forward pass."""
    return np.repeat(np.arange(p["bags"]), lengths(p))


def index_specs(p: Params, tables: int = 1) -> dict[str, TensorSpec]:
    n, bags = lookups(p, tables), p["bags"] * tables
    zipf = (lambda generator: _zipf(p, generator, n)) if p["distribution"] == "zipf" else None
    return {
        "indices": TensorSpec((n,), "int64", 0, p["rows"], zipf),
        "offsets": TensorSpec((bags,), "int64", 0, n, lambda generator: offsets(p, tables)),
    }


def _zipf(p: Params, generator: Any, n: int) -> Any:
    """By inverting the distribution function of k^-alpha between 1 and rows + 1, and cutting to whole k."""
    rows, uniform = p["rows"], generator.random(n)
    power = (1 - p["alpha"]) or 1e-9  # of 1/k the formula has a limit, and divides by nothing
    rank = (1 + uniform * ((rows + 1.0) ** power - 1)) ** (1 / power)
    k = np.clip(rank.astype(np.int64) - 1, 0, rows - 1)
    return k * _PRIME % rows
