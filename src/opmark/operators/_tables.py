"""Embedding tables: which rows are looked up, and how many per bag.

Rows are drawn uniformly or by Zipf's law. The length of a bag is fixed, or drawn from the parameters alone: so the cost
counts the actual lookups, and offsets are the same for every seed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from opmark.operators import _numpy as np
from opmark.schema import Param, Params, Rule, TensorSpec
from opmark.schema.param import choice, real, size

# Knuth's multiplier, a prime: it spreads the popular rows over the table, as in practice.
_PRIME = 2654435761

LOOKUPS: tuple[Param, ...] = (
    size("rows", "rows of a table"),
    size("dim", "elements of a row"),
    size("bags", "bags; each gives one row of the result"),
    size("pooling", "average number of rows per bag"),
    choice("lengths", "fixed: `pooling` rows in every bag; random: 1 to 2 pooling - 1", ("fixed", "random"), "fixed"),
    choice("distribution", "which rows are looked up: all equally often, or a few of them most of the time",
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
    """Return the number of rows of each bag, table after table."""
    return _lengths(p["bags"] * tables, p["pooling"], p["lengths"])


def lookups(p: Params, tables: int = 1) -> int:
    """Return the total number of lookups."""
    if p["lengths"] == "fixed":
        return int(p["bags"] * tables * p["pooling"])
    return int(lengths(p, tables).sum())


def longest(p: Params) -> int:
    return int(p["pooling"] if p["lengths"] == "fixed" else 2 * p["pooling"] - 1)


def offsets(p: Params, tables: int = 1) -> Any:
    """Return where each bag begins."""
    ends = np.cumsum(lengths(p, tables))
    return ends - lengths(p, tables)


def bag_of(p: Params) -> Any:
    """Return the bag of each lookup, which a framework knows from the forward pass."""
    return np.repeat(np.arange(p["bags"]), lengths(p))


def index_specs(p: Params, tables: int = 1) -> dict[str, TensorSpec]:
    n, bags = lookups(p, tables), p["bags"] * tables
    zipf = (lambda generator: _zipf(p, generator, n)) if p["distribution"] == "zipf" else None
    return {
        "indices": TensorSpec((n,), "int64", 0, p["rows"], zipf),
        "offsets": TensorSpec((bags,), "int64", 0, n, lambda generator: offsets(p, tables)),
    }


def _zipf(p: Params, generator: Any, n: int) -> Any:
    """Draw rows by inverting the distribution function of k^-alpha between 1 and rows + 1, cut to integers."""
    rows, uniform = p["rows"], generator.random(n)
    power = (1 - p["alpha"]) or 1e-9  # for alpha 1 the formula would divide by 0; this is close to its limit
    rank = (1 + uniform * ((rows + 1.0) ** power - 1)) ** (1 / power)
    k = np.clip(rank.astype(np.int64) - 1, 0, rows - 1)
    return k * _PRIME % rows
