"""Sequences of different length in one tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.sequence import OPERATORS, SEQUENCE_LAST, SEQUENCE_MASK, SEQUENCE_REVERSE
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

SIZES = {"steps": 3, "batch": 2, "dim": 1}
# Two sequences side by side, one of 3 steps, one of 2.
X = np.array([[[1.0], [10.0]], [[2.0], [20.0]], [[3.0], [30.0]]])
LENGTHS = np.array([3, 2])

RESULTS = [
    (SEQUENCE_MASK, {"value": -1.0}, [[1, 10], [2, 20], [3, -1]]),
    (SEQUENCE_LAST, {}, [3, 20]),
    (SEQUENCE_REVERSE, {}, [[3, 20], [2, 10], [1, 30]]),
]


@pytest.mark.parametrize(("op", "more", "expected"), RESULTS)
def test_results_by_hand(op: Operator, more: dict[str, Any], expected: Any) -> None:
    assert op.reference(op.complete({**SIZES, **more}), x=X, lengths=LENGTHS)[..., 0].tolist() == expected


COSTS = [
    # 3 x 2 x 5 elements of 4 bytes and 2 lengths of 8.
    (SEQUENCE_MASK, Cost(0, 136, 120), Cost(0, 136, 120)),
    (SEQUENCE_REVERSE, Cost(0, 136, 120), Cost(0, 136, 120)),
    # One step of each sequence; back, all steps are written.
    (SEQUENCE_LAST, Cost(0, 56, 40), Cost(0, 56, 120)),
]


@pytest.mark.parametrize(("op", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, forward: Cost, backward: Cost) -> None:
    params = op.complete({"steps": 3, "batch": 2, "dim": 5})
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_sequences_have_every_length_but_none(op: Operator, torch_cpu: Any) -> None:
    spec = op.inputs(op.complete({"steps": 4, "batch": 1000, "dim": 1}))["lengths"]
    assert set(torch_cpu.to_numpy(torch_cpu.tensor(spec, 0)).tolist()) == {1, 2, 3, 4}


@pytest.mark.parametrize("alias", ["SequenceMask", "SequenceLast", "SequenceReverse"])
def test_names_that_people_look_for(alias: str) -> None:
    assert operator(alias) in OPERATORS
