"""Losses of rows: of scores against a class, of vectors against vectors."""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.classification_loss import CLASS_LOSS_OPERATORS
from opmark.errors import InvalidParameter
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in CLASS_LOSS_OPERATORS}


def _loss(name: str, *values: Any, **given: Any) -> list[float]:
    op = BY_NAME[name]
    batch, width = np.shape(values[0])
    key = "classes" if "classes" in op.by_name else "dim"
    params = op.complete({"batch": batch, key: width, "reduction": "none", **given})
    return list(op.reference(params, **dict(zip(op.inputs(params), map(np.array, values), strict=True))))


def test_cross_entropy_by_hand() -> None:
    scores = [[log(1.0), log(2.0), log(5.0)]]
    assert _loss("cross_entropy", scores, [2]) == pytest.approx([log(8 / 5)])
    # Half of the weight on the right class, half spread over all three.
    smooth = 0.5 * log(8 / 5) + 0.5 * (log(8 / 1) + log(8 / 2) + log(8 / 5)) / 3
    assert _loss("cross_entropy", scores, [2], label_smoothing=0.5) == pytest.approx([smooth])


def test_cross_entropy_survives_large_scores() -> None:
    assert _loss("cross_entropy", [[1e4, 0.0]], [1]) == pytest.approx([1e4])


def test_nll_picks_the_right_class() -> None:
    assert _loss("nll_loss", [[-1.0, -2.0], [-3.0, -4.0]], [1, 0]) == [2.0, 3.0]


def test_margins_of_the_wrong_classes_are_averaged() -> None:
    # 1 - 0.5 + 0.25 = 0.75 and nothing of the last one; the right one does not count, but divides.
    assert _loss("multi_margin_loss", [[0.5, 0.25, -3.0]], [0]) == pytest.approx([0.75 / 3])


def test_several_labels_are_averaged() -> None:
    assert _loss("multilabel_soft_margin_loss", [[0.0, log(3.0)]], [[1.0, 0.0]]) == pytest.approx(
        [(log(2) + log(4)) / 2]
    )


def test_cosines_by_hand() -> None:
    like, unlike = [[3.0, 4.0]], [[4.0, 3.0]]
    assert _loss("cosine_embedding_loss", like, unlike, [1.0]) == pytest.approx([1 - 24 / 25])
    assert _loss("cosine_embedding_loss", like, unlike, [-1.0], margin=0.5) == pytest.approx([24 / 25 - 0.5])
    assert _loss("cosine_embedding_loss", like, [[-4.0, 3.0]], [-1.0]) == [0]


def test_triplets_by_hand() -> None:
    anchor, near, far = [[0.0, 0.0]], [[1.0, 1.0]], [[3.0, 4.0]]
    assert _loss("triplet_margin_loss", anchor, far, near) == pytest.approx([5 - sqrt(2) + 1], rel=1e-5)
    assert _loss("triplet_margin_loss", anchor, near, far) == [0]


def test_scores_never_differ_by_the_margin() -> None:
    op = BY_NAME["multi_margin_loss"]
    make = op.inputs(op.complete({"batch": 50, "classes": 40}))["x"].make
    assert make
    x = make(np.random.default_rng(0))
    assert np.abs(np.abs(x[:, :, None] - x[:, None, :]) - 1).min() > 0.05


@pytest.mark.parametrize(
    ("name", "given", "forward", "backward"),
    [
        # Difference, exponential and sum for 15 scores, 3 losses to add up; scores and 3 classes of 8 bytes in.
        ("cross_entropy", {"batch": 3, "classes": 5}, Cost(48, 60 + 24, 4), Cost(60, 84 + 4, 60)),
        # Only one score a row is looked at.
        ("nll_loss", {"batch": 3, "classes": 5}, Cost(6, 12 + 24, 4), Cost(3, 24 + 4, 60)),
        ("nll_loss", {"batch": 3, "classes": 5, "reduction": "none"}, Cost(3, 36, 12), Cost(3, 36, 60)),
        # Three tensors in, three gradients out.
        ("triplet_margin_loss", {"batch": 3, "dim": 5}, Cost(8 * 15 + 3, 180, 4), Cost(90, 184, 180)),
    ],
)
def test_cost_by_hand(name: str, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    op = BY_NAME[name]
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


def test_more_than_all_of_the_weight_cannot_be_shared() -> None:
    op = BY_NAME["cross_entropy"]
    with pytest.raises(InvalidParameter, match="parameter `label_smoothing` must be at most 1"):
        op.check_rules(op.complete({"batch": 2, "classes": 3, "label_smoothing": 1.5}))


@pytest.mark.parametrize("alias", ["softmax_cross_entropy", "SoftmaxCrossEntropyLoss", "CrossEntropyLoss"])
def test_names_of_other_systems_are_known(alias: str) -> None:
    assert operator(alias).name == "cross_entropy"
