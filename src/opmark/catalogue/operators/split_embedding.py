"""Embedding tables of different sizes in one call, as fbgemm's SplitTableBatchedEmbeddingBagsCodegen has them."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import INDEX_BYTES, expected_distinct
from opmark.catalogue.operators._builders import formula
from opmark.catalogue.operators._builders import torch as by_torch
from opmark.catalogue.operators._fbgemm import by_fbgemm, lookup
from opmark.catalogue.operators._tensor_files import read_tensor
from opmark.catalogue.operators.embedding import WEIGHTED, expected_distinct_zipf
from opmark.errors import InvalidParameter
from opmark.plugin import Launch, Operator, Param, ParamRule, Params, Tolerance
from opmark.plugin.param import choice, dtype, flag, real, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import ALPHA, FLOATS, SPREAD, sizeof, zipf_indices


def _sizes(p: Params) -> list[tuple[int, int]]:
    """Return rows and elements of a row for each table."""
    return list(zip(p["rows"], p["dims"], strict=True))


def _table_starts(p: Params) -> list[int]:
    """Return where each table begins in the weights, and where the last one ends."""
    return [0, *accumulate(rows * dim for rows, dim in _sizes(p))]


def _starts(p: Params) -> Any:
    """Return where each bag begins, table after table, and where the last one ends."""
    if p["offsets_file"]:
        found = read_tensor(p["offsets_file"]).astype("int64")
        bags, lookups = len(p["rows"]) * p["bags"], len(read_tensor(p["indices_file"]))
        if found.shape not in ((bags,), (bags + 1,)) or found[0] != 0 or (np.diff(found) < 0).any():
            raise InvalidParameter(
                f"{p['offsets_file']}: expected {bags} offsets from 0 upwards, got shape {list(found.shape)}",
                f"{len(p['rows'])} tables have {p['bags']} bags each",
            )
        if found[-1] > lookups:
            raise InvalidParameter(
                f"{p['offsets_file']}: expected offsets of at most {lookups}, got {found[-1]}",
                f"{p['indices_file']} has {lookups} indices",
            )
        return np.append(found[:bags], lookups)
    return np.concatenate([[0], np.cumsum(np.repeat(p["pooling"], p["bags"]))])


def _table_lookups(p: Params) -> list[int]:
    """Return the number of lookups in each table."""
    starts = _starts(p)
    return [int(starts[(t + 1) * p["bags"]] - starts[t * p["bags"]]) for t in range(len(p["rows"]))]


def _indices(p: Params, generator: Any) -> Any:
    if p["indices_file"]:
        found = read_tensor(p["indices_file"]).astype("int64")
        ends = np.repeat(p["rows"], _table_lookups(p))
        if found.shape != ends.shape or ((found < 0) | (found >= ends)).any():
            raise InvalidParameter(f"{p['indices_file']}: expected {len(ends)} indices below the rows of their tables")
        return found
    draw = zipf_indices if p["distribution"] == "zipf" else _uniform
    counts = zip(_table_lookups(p), p["rows"], strict=True)
    return np.concatenate([draw(generator, count, rows, p["alpha"]) for count, rows in counts])


def _uniform(generator: Any, count: int, rows: int, alpha: float) -> Any:
    return generator.integers(0, rows, count)


def _inputs(p: Params) -> dict[str, TensorSpec]:
    starts = _starts(p)
    lookups = int(starts[-1])
    specs = {
        "weight": TensorSpec((_table_starts(p)[-1],), p["dtype"]),
        "indices": TensorSpec((lookups,), "int64", 0, max(p["rows"]), lambda generator: _indices(p, generator)),
        "offsets": TensorSpec((len(starts) - 1,), "int64", 0, lookups, lambda generator: starts[:-1]),
    }
    if p["weighted"]:
        specs["per_sample_weights"] = TensorSpec((lookups,), p["dtype"], 0.5, 1.5)
    return specs


def _distinct(p: Params, table: int, lookups: int) -> float:
    """Return the number of rows of a table that are read; each is read once, however often it is looked up."""
    if p["indices_file"]:
        first = sum(_table_lookups(p)[:table])
        return len(np.unique(read_tensor(p["indices_file"])[first : first + lookups]))
    if p["distribution"] == "zipf":
        return expected_distinct_zipf(lookups, p["rows"][table], p["alpha"])
    return expected_distinct(lookups, p["rows"][table])


def _traffic(p: Params) -> tuple[int, int, int]:
    """Return bytes of indices, offsets and weights of samples; bytes of the output; and sums of elements."""
    nbytes, counts = sizeof(p["dtype"]), _table_lookups(p)
    lookups, bags = sum(counts), p["bags"]
    read = (lookups + bags * len(counts)) * INDEX_BYTES + lookups * nbytes * p["weighted"]
    sums = sum(count * (1 + p["weighted"]) * dim for count, dim in zip(counts, p["dims"], strict=True))
    return read, bags * sum(p["dims"]) * nbytes, sums


def _cost(p: Params) -> Cost:
    """A sum takes one operation less than it has rows, a mean one quotient more."""
    read, written, sums = _traffic(p)
    rows = sum(
        round(_distinct(p, t, count)) * p["dims"][t] * sizeof(p["dtype"]) for t, count in enumerate(_table_lookups(p))
    )
    spared = 0 if p["mode"] == "mean" else p["bags"] * sum(p["dims"])
    return Cost(max(0, sums - spared), read + rows, written)


def _backward_cost(p: Params) -> Cost:
    """The gradient is dense, so that all tables are written."""
    read, pooled, sums = _traffic(p)
    extra = p["bags"] * sum(p["dims"]) if p["mode"] == "mean" else 0
    return Cost(sums + extra, read + pooled, _table_starts(p)[-1] * sizeof(p["dtype"]))


def _reference(p: Params, weight: Any, indices: Any, offsets: Any, per_sample_weights: Any = None) -> Any:
    bags, ends = p["bags"], np.append(offsets, len(indices))
    first, pooled = _table_starts(p), []
    for t, (rows, dim) in enumerate(_sizes(p)):
        own = slice(int(ends[t * bags]), int(ends[(t + 1) * bags]))
        lengths = np.diff(ends[t * bags : (t + 1) * bags + 1])
        found = weight[first[t] : first[t + 1]].reshape(rows, dim)[indices[own]]
        if per_sample_weights is not None:
            found = found * per_sample_weights[own, None]
        total = np.zeros((bags, dim), weight.dtype)
        np.add.at(total, np.repeat(np.arange(bags), lengths), found)
        pooled.append(total / np.maximum(lengths, 1)[:, None].astype(weight.dtype) if p["mode"] == "mean" else total)
    return np.concatenate(pooled, axis=1)


def _torch(p: Params, weight: Any, indices: Any, offsets: Any, per_sample_weights: Any = None) -> Launch:
    """Call embedding_bag once for each table."""
    import torch
    from torch.nn.functional import embedding_bag

    first, starts, bags, calls = _table_starts(p), _starts(p), p["bags"], []
    for t, (rows, dim) in enumerate(_sizes(p)):
        own = slice(int(starts[t * bags]), int(starts[(t + 1) * bags]))
        local = torch.from_numpy(starts[t * bags : (t + 1) * bags] - own.start).to(indices.device)
        samples = None if per_sample_weights is None else per_sample_weights[own]
        calls.append((first[t], first[t + 1], rows, dim, indices[own], local, samples))
    mode = p["mode"]

    def launch() -> Any:
        return torch.cat(
            [embedding_bag(i, weight[a:b].view(rows, dim), o, mode=mode, per_sample_weights=w)
             for a, b, rows, dim, i, o, w in calls], 1,
        )  # fmt: skip

    return launch


def _fbgemm(p: Params, weight: Any, indices: Any, offsets: Any, per_sample_weights: Any = None) -> Launch:
    return lookup(p, _sizes(p), weight, indices, offsets, per_sample_weights)


def _terms(p: Params) -> int:
    counts = zip(_table_lookups(p), p["rows"], strict=True)
    shared: int = max(count // rows for count, rows in counts)
    return int(np.diff(_starts(p)).max()) + shared


def _longest(p: Params) -> float:
    return float((np.diff(_starts(p)).max() / 3) ** 0.5) if p["mode"] == "sum" else 0.0


def _one_each(name: str) -> ParamRule:
    return ParamRule(
        name,
        f"have one value per table, as many as rows has (got {{{name}}})",
        lambda p: len(p[name]) == len(p["rows"]),
    )


_RULES = (
    WEIGHTED,
    ParamRule("rows", "name at least one table (got {rows})", lambda p: len(p["rows"]) > 0),
    _one_each("dims"),
    _one_each("pooling"),
    ParamRule("rows", f"each be below {SPREAD} (got {{rows}})", lambda p: max(p["rows"]) < SPREAD),
    ParamRule("offsets_file", "be given if indices_file is, and only then",
              lambda p: bool(p["offsets_file"]) == bool(p["indices_file"])),
)  # fmt: skip

SPLIT = Operator(
    name="split_embedding_bag",
    summary="embedding_bag of several tables of different sizes in one call, results side by side",
    category="embedding",
    params=(
        shape("rows", "rows of each table"),
        shape("dims", "elements of a row, for each table"),
        size("bags", "bags of each table"),
        shape("pooling", "rows per bag, for each table"),
        choice("distribution", "which rows are looked up: all equally often, or a few of them most of the time",
               ("uniform", "zipf"), "uniform"),
        real("alpha", "zipf: the k-th most popular row is looked up k^-alpha times as often as the first", ALPHA,
             kind="amount"),
        Param("indices_file", "choice", "file with the indices (torch.save, numpy.save); empty: they are drawn", ""),
        Param("offsets_file", "choice", "file with the offsets, which then decide over `pooling`", ""),
        choice("mode", "how the rows of a bag are pooled", ("sum", "mean"), "sum"),
        flag("weighted", "each row is first multiplied by its own weight"),
        dtype(*FLOATS),
    ),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    reference=_reference,
    tolerance=Tolerance(_terms, magnitude=_longest),
    presets={
        "small": {"rows": [200, 50], "dims": [32, 16], "bags": 32, "pooling": [8, 3]},
        "typical": {"rows": [5000, 20000, 300], "dims": [64, 32, 16], "bags": 512, "pooling": [10, 20, 1]},
        "large": {"rows": [100000, 1000000, 5000], "dims": [128, 64, 32], "bags": 4096, "pooling": [32, 20, 1]},
    },
    gradients=("weight",),
    rules=_RULES,
    partial=True,
    implementations=(formula(_reference), by_torch(_torch, name="loop"), *by_fbgemm(_fbgemm)),
)  # fmt: skip

OPERATORS: tuple[Operator, ...] = (SPLIT,)
