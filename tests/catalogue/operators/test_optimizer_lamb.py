"""LAMB in two phases and as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.optimizer_lamb import OPERATORS
from opmark.errors import InvalidParameter
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in OPERATORS}

COSTS = [
    # 12 elements: weight, gradient, mean and mean square in; direction, mean and mean square out.
    ("lamb_update_phase1", {"dtype": "float32"}, Cost(15 * 12, 192, 144)),
    ("lamb_update_phase1", {"dtype": "float32", "bias_correction": False}, Cost(13 * 12, 192, 144)),
    ("mp_lamb_update_phase1", {"dtype": "float16"}, Cost(15 * 12, 168, 144)),
    # Weight, direction and two norms in, weight out.
    ("lamb_update_phase2", {"dtype": "float32"}, Cost(26, 104, 48)),
    ("mp_lamb_update_phase2", {"dtype": "bfloat16"}, Cost(26, 104, 72)),
    ("lamb_update", {"dtype": "float64"}, Cost(21 * 12, 384, 288)),
]


@pytest.mark.parametrize(("name", "given", "expected"), COSTS)
def test_cost_by_hand(name: str, given: dict[str, Any], expected: Cost) -> None:
    op = BY_NAME[name]
    assert op.cost(op.complete({"shape": [3, 4], **given})) == expected


def phase2(r1: float, r2: float, **given: Any) -> float:
    op = BY_NAME["lamb_update_phase2"]
    params = op.complete({"shape": [1], "lr": 0.5, **given})
    inputs = {"weight": 4.0, "g": 1.0, "r1": r1, "r2": r2}
    return float(op.reference(params, **{name: np.array([value]) for name, value in inputs.items()})[0])


def test_the_step_is_as_long_as_the_ratio_of_norms() -> None:
    assert phase2(3, 2) == 4 - 0.5 * 1.5


@pytest.mark.parametrize(("r1", "r2"), [(0, 2), (3, 0)])
def test_without_a_norm_the_ratio_is_one(r1: float, r2: float) -> None:
    assert phase2(r1, r2) == 3.5


def test_the_norm_of_the_weight_is_bounded() -> None:
    assert phase2(3, 2, upper_bound=1.0) == 4 - 0.5 * 0.5
    assert phase2(3, 2, lower_bound=4.0) == 4 - 0.5 * 2


def test_young_means_are_corrected() -> None:
    """After a first step from zero, both corrected means are those of the gradient: the direction is its sign."""
    op = BY_NAME["lamb_update_phase1"]
    arrays = {"weight": np.ones(2), "grad": np.array([3.0, -5.0]), "mean": np.zeros(2), "var": np.zeros(2)}
    found = op.reference(op.complete({"shape": [2], "t": 1, "eps": 0.0, "wd": 0.0}), **arrays)[0]
    np.testing.assert_allclose(found, [1, -1], rtol=1e-12)


def test_both_phases_make_the_whole() -> None:
    generator = np.random.default_rng(0)
    arrays = {name: generator.uniform(0.1, 1, 9) for name in ("weight", "grad", "mean", "var")}
    whole, first, second = (BY_NAME[f"lamb_update{part}"] for part in ("", "_phase1", "_phase2"))
    g, mean, var = first.reference(first.complete({"shape": [9]}), **arrays)
    norms = {"r1": np.array([np.linalg.norm(arrays["weight"])]), "r2": np.array([np.linalg.norm(g)])}
    weight = second.reference(second.complete({"shape": [9]}), weight=arrays["weight"], g=g, **norms)
    found = whole.reference(whole.complete({"shape": [9]}), **arrays)
    for one, other in zip(found, (weight, mean, var), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "given", "param"),
    [
        ("lamb_update_phase2", {"lower_bound": 2.0, "upper_bound": 1.0}, "upper_bound"),
        ("lamb_update_phase1", {"beta1": 1.0}, "beta1"),
    ],
)
def test_what_has_no_meaning_is_refused(name: str, given: dict[str, Any], param: str) -> None:
    op = BY_NAME[name]
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        op.check_rules(op.complete({"shape": [3], **given}))


def test_lamb_is_found_by_its_own_name() -> None:
    assert operator("lamb").name == "lamb_update"
