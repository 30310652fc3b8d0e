"""ctc_loss against all alignments, one by one."""

from __future__ import annotations

from itertools import groupby, product
from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.classification_loss import CTC_LOSS
from opmark.errors import InvalidParameter
from opmark.plugin.registry import operator
from opmark.schema import Cost


def _by_alignments(log_probs: Any, targets: list[int]) -> float:
    """Return minus the logarithm of the sum over every sequence of classes that collapses to the targets."""
    steps, classes = log_probs.shape
    total = 0.0
    for path in product(range(classes), repeat=steps):
        if [label for label, _ in groupby(path) if label] == targets:
            total += float(np.exp(sum(log_probs[t, label] for t, label in enumerate(path))))
    return -float(np.log(total))


@pytest.mark.parametrize("targets", [[1, 2], [1, 1], [2, 1, 2], [1, 2, 2], [1]])
def test_every_alignment_counts(targets: list[int]) -> None:
    params = CTC_LOSS.complete(
        {"steps": 6, "batch": 2, "classes": 3, "labels": len(targets), "reduction": "none", "dtype": "float64"}
    )
    make = CTC_LOSS.inputs(params)["log_probs"].make
    assert make
    log_probs = make(np.random.default_rng(0))
    found = CTC_LOSS.reference(params, log_probs=log_probs, targets=np.array([targets, targets]))
    expected = [_by_alignments(log_probs[:, i], targets) for i in range(2)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_mean_is_taken_by_label_and_then_over_the_batch() -> None:
    given = {"steps": 9, "batch": 3, "classes": 4, "labels": 4, "dtype": "float64"}
    params = CTC_LOSS.complete(given)
    draw = np.random.default_rng(0)
    make = CTC_LOSS.inputs(params)["log_probs"].make
    assert make
    inputs = {"log_probs": make(draw), "targets": draw.integers(1, 4, (3, 4))}
    each = CTC_LOSS.reference({**params, "reduction": "none"}, **inputs)
    assert CTC_LOSS.reference(params, **inputs) == pytest.approx(each.mean() / 4)
    assert CTC_LOSS.reference({**params, "reduction": "sum"}, **inputs) == pytest.approx(each.sum())


def test_inputs_are_probabilities_and_labels_are_no_blanks() -> None:
    params = CTC_LOSS.complete(CTC_LOSS.preset("small"))
    specs = CTC_LOSS.inputs(params)
    make = specs["log_probs"].make
    assert make
    np.testing.assert_allclose(np.exp(make(np.random.default_rng(0))).sum(axis=-1), 1)
    assert specs["targets"].low == 1
    assert specs["targets"].high == params["classes"]


def test_a_direction_keeps_probabilities_adding_up_to_one() -> None:
    params = CTC_LOSS.complete(CTC_LOSS.preset("small"))
    make = CTC_LOSS.inputs(params)["log_probs"].make
    assert make
    assert CTC_LOSS.direction
    log_probs = make(np.random.default_rng(0))
    way = CTC_LOSS.direction(params, "log_probs", np.random.default_rng(1), log_probs)
    np.testing.assert_allclose(np.exp(log_probs + 1e-6 * way).sum(axis=-1), 1, atol=1e-11)


def test_cost_by_hand() -> None:
    params = CTC_LOSS.complete({"steps": 5, "batch": 2, "classes": 4, "labels": 3})
    # 5 x 2 x 7 places of 11 operations. 3 labels of 3 classes are 3 (1 - (2/3)^3) = 2.11 different ones, and the blank:
    # 5 x 2 x 3.11 scores of 4 bytes and 6 labels of 8 in. Back: 17 operations a place, and all 40 scores out.
    assert CTC_LOSS.phase_cost(params, "forward") == Cost(770, 31 * 4 + 48, 4)
    assert CTC_LOSS.phase_cost(params, "backward") == Cost(70 * 17, 172 + 4, 160)


def test_classes_that_no_label_names_are_not_read() -> None:
    """Four labels of 10,000 classes: at each step 4 scores (3.9994, and a blank), whatever the number of classes."""
    params = CTC_LOSS.complete({"steps": 10, "batch": 3, "classes": 10_001, "labels": 4})
    assert CTC_LOSS.cost(params).bytes_read == 10 * 3 * 5 * 4 + 3 * 4 * 8
    backward = CTC_LOSS.phase_cost(params, "backward")
    assert backward.bytes_written == 10 * 3 * 10_001 * 4, "zeros for the others"
    assert backward.flops == 17 * 10 * 3 * 9


@pytest.mark.parametrize(
    ("given", "blamed"), [({"steps": 6, "labels": 4}, "steps"), ({"steps": 9, "labels": 4, "classes": 1}, "classes")]
)
def test_what_cannot_be_aligned_is_refused(given: dict[str, Any], blamed: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{blamed}` must"):
        CTC_LOSS.check_rules(CTC_LOSS.complete({"batch": 2, "classes": 4, **given}))


def test_the_name_of_another_system_is_known() -> None:
    assert operator("CTCLoss") is CTC_LOSS
