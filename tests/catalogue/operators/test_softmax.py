"""softmax, log_softmax, softmin, masked_softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.softmax import LOG_SOFTMAX, MASKED_SOFTMAX, OPERATORS, SOFTMAX, SOFTMIN
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

X = np.random.default_rng(0).uniform(-3, 3, (4, 5, 6))

COSTS = [
    # 12 elements. Difference, exponential, sum, quotient: 4 an element; a maximum is only compared. Back: the gradient
    # and the output in.
    (SOFTMAX, {"shape": [3, 4], "dtype": "float32"}, Cost(48, 48, 48), Cost(48, 96, 48)),
    (SOFTMAX, {"shape": [3, 4], "axis": 0, "dtype": "float16"}, Cost(48, 24, 24), Cost(48, 48, 24)),
    (LOG_SOFTMAX, {"shape": [3, 4], "dtype": "float64"}, Cost(48, 96, 96), Cost(48, 192, 96)),
    # 12 bytes of a mask beside it, which backwards nobody needs.
    (MASKED_SOFTMAX, {"shape": [3, 4], "dtype": "float32"}, Cost(48, 60, 48), Cost(48, 96, 48)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize("axis", range(-3, 3))
def test_the_references_are_those_of_torch_on_every_axis(axis: int) -> None:
    x, p = torch.from_numpy(X), {"axis": axis}
    np.testing.assert_allclose(SOFTMAX.reference(p, x=X), torch.softmax(x, axis), rtol=1e-13)
    np.testing.assert_allclose(LOG_SOFTMAX.reference(p, x=X), torch.log_softmax(x, axis), rtol=1e-13)
    np.testing.assert_allclose(SOFTMIN.reference(p, x=X), torch.nn.functional.softmin(x, axis), rtol=1e-13)


@pytest.mark.parametrize("op", [SOFTMAX, SOFTMIN], ids=lambda op: op.name)
def test_large_numbers_do_not_overflow(op: Operator) -> None:
    assert op.reference({"axis": 0}, x=np.array([1e4, 1e4])).tolist() == [0.5, 0.5]


def test_log_softmax_of_a_distant_number_is_not_minus_infinity() -> None:
    assert LOG_SOFTMAX.reference({"axis": 0}, x=np.array([0.0, 1e4])).tolist() == [-1e4, 0.0]


def test_what_is_masked_gets_nothing() -> None:
    found = MASKED_SOFTMAX.reference({"axis": 0}, x=np.array([1.0, 9.0, 1.0]), mask=np.array([True, False, True]))
    assert found.tolist() == [0.5, 0.0, 0.5]


@pytest.mark.parametrize("axis", [-3, -1, 0, 1])
def test_no_row_is_masked_altogether(axis: int) -> None:
    spec = MASKED_SOFTMAX.inputs(MASKED_SOFTMAX.complete({"shape": [9, 2, 7], "axis": axis}))["mask"]
    assert spec.make
    mask = spec.make(np.random.default_rng(0))
    assert mask.any(axis=axis).all()
    assert not mask.all()


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_an_axis_is_allowed_if_it_exists(op: Operator) -> None:
    for axis in (-2, -1, 0, 1):
        op.check_rules(op.complete({"shape": [2, 3], "axis": axis}))
    for axis in (-3, 2):
        with pytest.raises(InvalidParameter, match=rf"parameter `axis` must .*\[2, 3\] \(got {axis}\)"):
            op.check_rules(op.complete({"shape": [2, 3], "axis": axis}))


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("SoftmaxActivation", "softmax"),
        ("Softmax", "softmax"),
        ("SoftmaxOutput", "softmax"),
        ("LogSoftmax", "log_softmax"),
    ],
)
def test_names_of_other_systems_are_found(alias: str, name: str) -> None:
    assert operator(alias).name == name
