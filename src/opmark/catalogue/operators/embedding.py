"""Embedding tables of recommendation models: embedding_bag of one table, and of several in one call."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import INDEX_BYTES, expected_distinct
from opmark.catalogue.operators._builders import formula
from opmark.catalogue.operators._builders import torch as by_torch
from opmark.catalogue.operators._fbgemm import by_fbgemm, lookup
from opmark.plugin import Launch, Operator, Param, ParamRule, Params, Tolerance
from opmark.plugin.param import choice, dtype, flag, real, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import ALPHA, FLOATS, SPREAD, sizeof, zipf_indices

LOOKUPS: tuple[Param, ...] = (
    size("rows", "rows of a table"),
    size("dim", "elements of a row"),
    size("bags", "bags; each gives one row of the result"),
    size("pooling", "average number of rows per bag"),
    choice("lengths", "fixed: `pooling` rows in every bag; random: 1 to 2 pooling - 1", ("fixed", "random"), "fixed"),
    choice("distribution", "which rows are looked up: all equally often, or a few of them most of the time",
           ("uniform", "zipf"), "uniform"),
    real("alpha", "zipf: the k-th most popular row is looked up k^-alpha times as often as the first", ALPHA,
         kind="amount"),
)  # fmt: skip
SPREADABLE = ParamRule("rows", f"be below {SPREAD} (got {{rows}})", lambda p: p["rows"] < SPREAD)


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


def distinct_rows(p: Params, tables: int = 1) -> int:
    """Return the number of different rows that are looked up, as many as are to be expected of random indices."""
    each = lookups(p, tables) / tables
    if p["distribution"] == "uniform":
        return round(tables * expected_distinct(each, p["rows"]))
    return round(tables * expected_distinct_zipf(each, p["rows"], p["alpha"]))


@lru_cache(maxsize=256)
def expected_distinct_zipf(lookups: float, rows: int, alpha: float) -> float:
    """Return the expected number of different ranks that `zipf_indices` draws. Ranks above 4,096 are taken together in
    steps of 1 %, within which they are about equally frequent."""
    power = (1 - alpha) or 1e-9
    found, first = 0.0, 1
    while first <= rows:
        ranks = min(max(1, first // 100) if first > 4096 else 1, rows + 1 - first)
        share = ((first + ranks) ** power - first**power) / ((rows + 1.0) ** power - 1)
        found += ranks * -math.expm1(lookups * math.log1p(-min(share / ranks, 1 - 1e-15)))
        first += ranks
    return found


def bag_starts(p: Params, tables: int = 1) -> Any:
    """Return where each bag begins."""
    ends = np.cumsum(lengths(p, tables))
    return ends - lengths(p, tables)


def bag_of(p: Params) -> Any:
    """Return the bag of each lookup, which a framework knows from the forward pass."""
    return np.repeat(np.arange(p["bags"]), lengths(p))


def index_specs(p: Params, tables: int = 1) -> dict[str, TensorSpec]:
    n, bags = lookups(p, tables), p["bags"] * tables
    zipf = (
        (lambda generator: zipf_indices(generator, n, p["rows"], p["alpha"])) if p["distribution"] == "zipf" else None
    )
    return {
        "indices": TensorSpec((n,), "int64", 0, p["rows"], zipf),
        "offsets": TensorSpec((bags,), "int64", 0, n, lambda generator: bag_starts(p, tables)),
    }


MODE = choice("mode", "how the rows of a bag are pooled", ("sum", "mean", "max"), "sum")
PRESETS = {
    "small": {"rows": 500, "dim": 64, "bags": 64, "pooling": 8},
    "typical": {"rows": 20000, "dim": 64, "bags": 2048, "pooling": 20},
    "large": {"rows": 1000000, "dim": 128, "bags": 65536, "pooling": 32},
}
_REDUCE = {"sum": "add", "mean": "add", "max": "maximum"}


def _terms(p: Params) -> int:
    """Return the number of rows that are added up: in a bag or, backwards, over bags that share a row."""
    return longest(p) + lookups(p) // int(p["rows"])


def _tolerance() -> Tolerance:
    return Tolerance(_terms, magnitude=lambda p: (p["pooling"] / 3) ** 0.5 if p["mode"] == "sum" else 0.0)


def _inputs(p: Params) -> dict[str, TensorSpec]:
    specs = {"weight": TensorSpec((p["rows"], p["dim"]), p["dtype"]), **index_specs(p)}
    if p["weighted"]:
        specs["per_sample_weights"] = TensorSpec((lookups(p),), p["dtype"], 0.5, 1.5)
    return specs


def _pooling_flops(n: int, bags: int, dim: int, mode: str, weighted: bool) -> int:
    """A sum takes one operation less than it has rows, a mean one quotient more; comparisons do not count."""
    return 0 if mode == "max" else (n - bags + n * weighted + bags * (mode == "mean")) * dim


def _cost(p: Params) -> Cost:
    """Only the rows that are looked up are read, each once however often it is looked up."""
    n, nbytes = lookups(p), sizeof(p["dtype"])
    read = distinct_rows(p) * p["dim"] * nbytes + (n + p["bags"]) * INDEX_BYTES + n * nbytes * p["weighted"]
    flops = _pooling_flops(n, p["bags"], p["dim"], p["mode"], p["weighted"])
    return Cost(flops, read, p["bags"] * p["dim"] * nbytes)


def _backward_cost(p: Params) -> Cost:
    """The gradient is dense, so the whole table is written. With a maximum, one row per bag and element gets the
    gradient; the forward pass has stored which one."""
    n, out, nbytes = lookups(p), p["bags"] * p["dim"], sizeof(p["dtype"])
    table = p["rows"] * p["dim"] * nbytes
    if p["mode"] == "max":
        return Cost(out, out * (nbytes + INDEX_BYTES), table)
    added = n * (1 + p["weighted"]) + p["bags"] * (p["mode"] == "mean")
    read = out * nbytes + (n + p["bags"]) * INDEX_BYTES + n * nbytes * p["weighted"]
    return Cost(added * p["dim"], read, table)


def _pool(p: Params, rows: Any, starts: Any) -> Any:
    pooled = getattr(np, _REDUCE[p["mode"]]).reduceat(rows, starts, axis=0)
    if p["mode"] != "mean":
        return pooled
    return pooled / np.diff(starts, append=len(rows))[:, None].astype(rows.dtype)


def _reference(p: Params, weight: Any, indices: Any, offsets: Any, per_sample_weights: Any = None) -> Any:
    rows = weight[indices]
    return _pool(p, rows if per_sample_weights is None else rows * per_sample_weights[:, None], offsets)


def _torch(p: Params, weight: Any, indices: Any, offsets: Any, per_sample_weights: Any = None) -> Launch:
    from torch.nn.functional import embedding_bag

    return partial(embedding_bag, indices, weight, offsets, mode=p["mode"], per_sample_weights=per_sample_weights)


def _order_preserving(p: Params, name: str, generator: Any, array: Any) -> Any:
    """Return a direction that stretches and moves each column as a whole: a maximum is smooth if the order stays."""
    if p["mode"] != "max":
        return generator.choice((-1.0, 1.0), size=array.shape)
    stretch, move = generator.choice((-1.0, 1.0), size=(2, array.shape[-1]))
    return array * stretch + move


WEIGHTED = ParamRule("weighted", "be false unless mode is sum (got mode={mode})",
                lambda p: not p["weighted"] or p["mode"] == "sum")  # fmt: skip

EMBEDDING_BAG = Operator(
    name="embedding_bag",
    summary="rows of a table by index, pooled by bag",
    category="embedding",
    params=(*LOOKUPS, MODE, flag("weighted", "each row is first multiplied by its own weight"), dtype(*FLOATS)),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    reference=_reference,
    tolerance=_tolerance(),
    presets=PRESETS,
    gradients=("weight",),
    rules=(WEIGHTED, SPREADABLE),
    direction=_order_preserving,
    partial=True,
    implementations=(formula(_reference), by_torch(_torch, "torch.nn.functional.embedding_bag")),
    aliases=("EmbeddingBag", "embeddingbag"),
)


def _batched_inputs(p: Params) -> dict[str, TensorSpec]:
    return {"weight": TensorSpec((p["tables"], p["rows"], p["dim"]), p["dtype"]), **index_specs(p, p["tables"])}


def _batched_cost(p: Params) -> Cost:
    n, bags, nbytes = lookups(p, p["tables"]), p["tables"] * p["bags"], sizeof(p["dtype"])
    read = distinct_rows(p, p["tables"]) * p["dim"] * nbytes + (n + bags) * INDEX_BYTES
    return Cost(_pooling_flops(n, bags, p["dim"], p["mode"], False), read, bags * p["dim"] * nbytes)


def _batched_backward_cost(p: Params) -> Cost:
    n, bags, nbytes = lookups(p, p["tables"]), p["tables"] * p["bags"], sizeof(p["dtype"])
    added = n + bags * (p["mode"] == "mean")
    read = bags * p["dim"] * nbytes + (n + bags) * INDEX_BYTES
    return Cost(added * p["dim"], read, p["tables"] * p["rows"] * p["dim"] * nbytes)


def _table_of(p: Params) -> Any:
    """Return the table of each lookup."""
    return np.repeat(np.repeat(np.arange(p["tables"]), p["bags"]), lengths(p, p["tables"]))


def _batched_reference(p: Params, weight: Any, indices: Any, offsets: Any) -> Any:
    pooled = _pool(p, weight[_table_of(p), indices], offsets)
    return pooled.reshape(p["tables"], p["bags"], p["dim"])


def _torch_joined_tables(p: Params, weight: Any, indices: Any, offsets: Any) -> Launch:
    """Make one call over all tables joined into one; indices are shifted to their table's first row."""
    import torch
    from torch.nn.functional import embedding_bag

    base = torch.from_numpy(_table_of(p) * p["rows"]).to(indices.device)
    size = (p["tables"], p["bags"], p["dim"])
    return lambda: embedding_bag(indices + base, weight.flatten(0, 1), offsets, mode=p["mode"]).reshape(size)


def _batched_loop(p: Params, weight: Any, indices: Any, offsets: Any) -> Launch:
    import torch
    from torch.nn.functional import embedding_bag

    starts = bag_starts(p, p["tables"]).reshape(p["tables"], -1)
    ends = [*starts[1:, 0], lookups(p, p["tables"])]
    own = [indices[start:end] for start, end in zip(starts[:, 0], ends, strict=True)]
    local = [torch.from_numpy(row - row[0]).to(indices.device) for row in starts]
    pool = partial(embedding_bag, mode=p["mode"])
    return lambda: torch.stack([pool(i, w, o) for i, w, o in zip(own, weight, local, strict=True)])


def _batched_fbgemm(p: Params, weight: Any, indices: Any, offsets: Any) -> Launch:
    side_by_side = lookup(p, [(p["rows"], p["dim"])] * p["tables"], weight, indices, offsets, None)
    size = (p["bags"], p["tables"], p["dim"])
    return lambda: side_by_side().view(size).transpose(0, 1)


BATCHED = Operator(
    name="batched_embedding_bag",
    summary="embedding_bag of several tables of one size in one call",
    category="embedding",
    params=(size("tables", "tables"), *LOOKUPS,
            choice("mode", "how the rows of a bag are pooled", ("sum", "mean"), "sum"), dtype(*FLOATS)),
    inputs=_batched_inputs,
    cost=_batched_cost,
    backward_cost=_batched_backward_cost,
    reference=_batched_reference,
    tolerance=_tolerance(),
    presets={
        "small": {"tables": 4, "rows": 200, "dim": 32, "bags": 32, "pooling": 8},
        "typical": {"tables": 8, "rows": 5000, "dim": 64, "bags": 512, "pooling": 10},
        "large": {"tables": 16, "rows": 100000, "dim": 128, "bags": 4096, "pooling": 32},
    },
    gradients=("weight",),
    rules=(SPREADABLE,),
    partial=True,
    implementations=(
        formula(_batched_reference),
        by_torch(_torch_joined_tables, name="merged"),
        by_torch(_batched_loop, name="loop"),
        *by_fbgemm(_batched_fbgemm),
    ),
    aliases=("SplitTableBatchedEmbeddingBagsCodegen", "table_batched_embedding", "split_table_batched_embeddings_ops",
             "split_table_batched_embedding_bags"),
)  # fmt: skip

OPERATORS: tuple[Operator, ...] = (EMBEDDING_BAG, BATCHED)
