"""Embedding tables: embedding_bag, batched tables, and the data that looks rows up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators import embedding
from opmark.catalogue.operators.embedding import BATCHED, EMBEDDING_BAG
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

SIZES: dict[str, Any] = {"rows": 10, "dim": 4, "bags": 3, "pooling": 5}

COSTS = [
    # 15 of 10 rows of 4 floats are asked for: 10 (1 - 0.9^15) = 7.94 different ones, each read once; 15 indices and 3
    # offsets of 8 bytes in, 3 rows out; 12 sums of rows. Back: 3 rows and all indices in, the whole table out; 15 rows
    # are added up.
    (EMBEDDING_BAG, {}, Cost(48, 8 * 16 + 144, 48), Cost(60, 48 + 144, 160)),
    # 100 (1 - 0.99^15) = 13.99 different rows.
    (EMBEDDING_BAG, {"rows": 100}, Cost(48, 14 * 16 + 144, 48), Cost(60, 192, 1600)),
    (EMBEDDING_BAG, {"mode": "mean"}, Cost(60, 272, 48), Cost(72, 192, 160)),
    # Back: for each of 12 elements the gradient and the row that it came from, 8 bytes.
    (EMBEDDING_BAG, {"mode": "max"}, Cost(0, 272, 48), Cost(12, 48 + 96, 160)),
    # A weight of 4 bytes for each row looked up, and a product.
    (EMBEDDING_BAG, {"weighted": True}, Cost(108, 332, 48), Cost(120, 252, 160)),
    (EMBEDDING_BAG, {"dtype": "float16"}, Cost(48, 208, 24), Cost(60, 168, 80)),
    # Two tables: twice 7.94 rows, or twice 13.99.
    (BATCHED, {"tables": 2}, Cost(96, 16 * 16 + 288, 96), Cost(120, 384, 320)),
    (BATCHED, {"tables": 2, "rows": 100}, Cost(96, 28 * 16 + 288, 96), Cost(120, 384, 3200)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete({**SIZES, **given})
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


def test_the_cost_counts_the_rows_that_really_are_looked_up(torch_cpu: Any) -> None:
    params = EMBEDDING_BAG.complete({**SIZES, "rows": 1000, "bags": 50, "lengths": "random"})
    for seed in (0, 1):
        inputs = {name: torch_cpu.tensor(spec, seed) for name, spec in EMBEDDING_BAG.inputs(params).items()}
        n = len(inputs["indices"])
        assert n != 250  # which a fixed length would give
        read = EMBEDDING_BAG.cost(params).bytes_read - n * 8 - 50 * 8
        assert read == 16 * embedding.distinct_rows(params)
        assert read == pytest.approx(16 * len(set(inputs["indices"].tolist())), rel=0.05)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.05, 2.0])
@pytest.mark.parametrize(("rows", "bags"), [(10, 4), (1000, 200), (20_000, 4000), (300_000, 4000)])
def test_rows_that_are_looked_up_again_and_again_are_read_once(
    alpha: float, rows: int, bags: int, numpy_cpu: Any
) -> None:
    given = {"rows": rows, "bags": bags, "pooling": 10, "distribution": "zipf", "alpha": alpha}
    params = EMBEDDING_BAG.complete({**SIZES, **given})
    spec = EMBEDDING_BAG.inputs(params)["indices"]
    drawn = np.mean([len(np.unique(numpy_cpu.tensor(spec, seed))) for seed in range(5)])
    assert embedding.distinct_rows(params) == pytest.approx(drawn, rel=0.03, abs=1)


def test_random_lengths_have_the_mean_that_was_asked_for() -> None:
    params = EMBEDDING_BAG.complete({**SIZES, "bags": 10000, "lengths": "random"})
    found = embedding.lengths(params)
    assert found.min() == 1
    assert found.max() == 9
    assert found.mean() == pytest.approx(5, abs=0.1)


def test_offsets_are_where_bags_begin() -> None:
    params = EMBEDDING_BAG.complete({**SIZES, "lengths": "random"})
    found, starts = embedding.lengths(params), embedding.bag_starts(params)
    assert starts.tolist() == [0, found[0], found[0] + found[1]]
    assert np.bincount(embedding.bag_of(params)).tolist() == found.tolist()


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5])
def test_zipf_favours_rows_by_its_power_law(alpha: float, numpy_cpu: Any) -> None:
    params = EMBEDDING_BAG.complete(
        {**SIZES, "rows": 1000, "bags": 20000, "pooling": 10, "distribution": "zipf", "alpha": alpha}
    )
    indices = numpy_cpu.tensor(EMBEDDING_BAG.inputs(params)["indices"], 0)
    counts = np.sort(np.bincount(indices, minlength=1000))[::-1]
    # The continuous law, cut to whole ranks: from the 10th on, counts fall as the power says.
    slope = np.log(counts[9:12].mean() / counts[99:120].mean()) / np.log(109 / 10)
    assert slope == pytest.approx(alpha, abs=0.12)


def test_popular_rows_lie_all_over_the_table(numpy_cpu: Any) -> None:
    params = EMBEDDING_BAG.complete({**SIZES, "rows": 1000, "bags": 5000, "distribution": "zipf"})
    indices = numpy_cpu.tensor(EMBEDDING_BAG.inputs(params)["indices"], 0)
    popular = np.argsort(np.bincount(indices, minlength=1000))[-10:]
    assert popular.max() - popular.min() > 300
    assert np.diff(np.sort(popular)).max() > 10


def test_the_spreading_of_popular_rows_keeps_them_apart() -> None:
    """Each popularity rank has its own row."""
    for rows in (7, 1000, 4096):
        assert len({k * embedding.SPREAD % rows for k in range(rows)}) == rows


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_reference_is_that_of_torch(mode: str) -> None:
    params = EMBEDDING_BAG.complete({**SIZES, "mode": mode})
    weight, indices, offsets = np.random.default_rng(0).random((10, 4)), np.array([1, 1, 9, 0, 5]), np.array([0, 1, 4])
    expected = torch.nn.functional.embedding_bag(*map(torch.from_numpy, (indices, weight, offsets)), mode=mode)
    found = EMBEDDING_BAG.reference(params, weight=weight, indices=indices, offsets=offsets)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_each_table_is_looked_up_in_itself() -> None:
    params = BATCHED.complete({"tables": 2, "rows": 2, "dim": 1, "bags": 1, "pooling": 2})
    weight = np.array([[[1.0], [2.0]], [[10.0], [20.0]]])
    found = BATCHED.reference(params, weight=weight, indices=np.array([0, 0, 1, 1]), offsets=np.array([0, 2]))
    assert found.tolist() == [[[2.0]], [[40.0]]]


def test_weights_of_rows_are_for_sums_only() -> None:
    with pytest.raises(InvalidParameter, match="parameter `weighted` must be false unless mode is sum"):
        EMBEDDING_BAG.check_rules(EMBEDDING_BAG.complete({**SIZES, "mode": "max", "weighted": True}))


@pytest.mark.parametrize("name", ["pooling", "bags", "rows"])
def test_nothing_to_look_up_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{name}`"):
        EMBEDDING_BAG.param(name).check(0)


def test_params_operator_is_found_by_its_name() -> None:
    assert operator("SplitTableBatchedEmbeddingBagsCodegen").name == "batched_embedding_bag"
