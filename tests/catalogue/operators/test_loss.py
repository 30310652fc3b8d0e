"""Losses of predictions against targets, element by element."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.loss import OPERATORS
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in OPERATORS}
every_loss = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)


def _loss(name: str, *values: list[float], **given: Any) -> list[float]:
    op = BY_NAME[name]
    params = op.complete({"shape": [len(values[0])], "reduction": "none", **given})
    inputs = dict(zip(op.inputs(params), map(np.array, values), strict=True))
    return list(op.reference(params, **inputs))


@pytest.mark.parametrize(
    ("name", "values", "given", "expected"),
    [
        ("l1_loss", ([1.0, -2.0], [3.0, -1.0]), {}, [2, 1]),
        ("mse_loss", ([1.0, -2.0], [3.0, -1.0]), {}, [4, 1]),
        ("smooth_l1_loss", ([0.5, 3.0], [0.0, 0.0]), {}, [0.125, 2.5]),
        ("smooth_l1_loss", ([0.5, 3.0], [0.0, 0.0]), {"beta": 2.0}, [0.0625, 2]),
        # MXNet: (sigma x)² / 2 where |x| is below 1 / sigma², else |x| - 1 / sigma² / 2.
        ("smooth_l1", ([0.5, -3.0],), {}, [0.125, 2.5]),
        ("smooth_l1", ([0.125, -3.0],), {"sigma": 2.0}, [0.03125, 2.875]),
        ("huber_loss", ([0.5, 3.0], [0.0, 0.0]), {"delta": 2.0}, [0.125, 4]),
        ("bce_loss", ([0.25, 0.25], [1.0, 0.0]), {}, [-log(0.25), -log(0.75)]),
        ("bce_with_logits", ([0.0, -log(3.0)], [0.5, 1.0]), {}, [log(2), log(4)]),
        ("kl_div", ([log(0.25)], [0.5]), {}, [0.5 * log(2)]),
        ("poisson_nll_loss", ([0.0, 0.0], [3.0, 1.0]), {}, [1, 1]),
        ("poisson_nll_loss", ([1.0, 1.0], [3.0, 1.0]), {"log_input": False}, [1, 1]),
        ("gaussian_nll_loss", ([3.0], [1.0], [1.0]), {}, [2]),
        ("soft_margin_loss", ([0.0, log(3.0)], [1.0, -1.0]), {}, [log(2), log(4)]),
        ("hinge_loss", ([0.5, 2.0, 0.5], [1.0, 1.0, -1.0]), {}, [0.5, 0, 1.5]),
        ("hinge_embedding_loss", ([0.5, 0.5, 2.0], [1.0, -1.0, -1.0]), {}, [0.5, 0.5, 0]),
        ("margin_ranking_loss", ([1.0, 1.0], [3.0, 3.0], [1.0, -1.0]), {"margin": 0.5}, [2.5, 0]),
        ("scaled_loss", ([1.0, 3.0],), {"grad_scale": 0.5}, [0.5, 1.5]),
    ],
)
def test_values_by_hand(
    name: str, values: tuple[list[float], ...], given: dict[str, Any], expected: list[float]
) -> None:
    assert _loss(name, *values, **given) == pytest.approx(expected, abs=1e-7)


def test_every_loss_has_values_by_hand() -> None:
    (mark,) = (m for m in test_values_by_hand.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert {case[0] for case in mark.args[1]} == set(BY_NAME)


@pytest.mark.parametrize(("reduction", "expected"), [("mean", 1.5), ("sum", 3.0)])
def test_losses_become_a_number(reduction: str, expected: float) -> None:
    op = BY_NAME["l1_loss"]
    params = op.complete({"shape": [2], "reduction": reduction})
    found = op.reference(params, x=np.array([1.0, -2.0]), target=np.array([3.0, -1.0]))
    assert found.shape == ()
    assert found == expected


def test_a_divergence_is_averaged_over_the_batch_only() -> None:
    op = BY_NAME["kl_div"]
    params = op.complete({"shape": [2, 3]})
    assert params["reduction"] == "batchmean"
    found = op.reference(params, x=np.full((2, 3), log(0.25)), target=np.full((2, 3), 0.5))
    assert found == pytest.approx(3 * 0.5 * log(2))


def _distance_to_kinks(values: Any) -> float:
    return float(np.abs(values * 4 - np.rint(values * 4)).min()) / 4


def test_data_keeps_away_from_kinks_and_lies_on_both_sides_of_them() -> None:
    """Kinks are at multiples of 1/4; in bfloat16 two values that differ by less than 1/64 may be equal."""
    op = BY_NAME["l1_loss"]
    specs = op.inputs(op.complete({"shape": [1000]}))
    x, target = (spec.make(np.random.default_rng(i)) for i, spec in enumerate(specs.values()) if spec.make)
    for values in (x, target, x - target):
        assert _distance_to_kinks(values) > 1 / 64
        assert (values > 0).any()
        assert (values < 0).any()
    assert (np.abs(x - target) > 1).any()
    assert (np.abs(x - target) < 1).any()


def test_a_large_tensor_repeats_itself_but_not_row_by_row() -> None:
    op = BY_NAME["l1_loss"]
    make = op.inputs(op.complete({"shape": [2048, 1024]}))["x"].make
    assert make
    x = make(np.random.default_rng(0))
    assert x.shape == (2048, 1024)
    assert len(np.unique(x, axis=0)) == 2048


@pytest.mark.parametrize(
    ("name", "reduction", "forward", "backward"),
    [
        # A difference and its magnitude for 12 elements; two tensors in, 12 losses out, back with 12 gradients.
        ("l1_loss", "none", Cost(24, 96, 48), Cost(24, 144, 48)),
        # 12 more to add up; one number out, and one gradient back in.
        ("l1_loss", "mean", Cost(36, 96, 4), Cost(24, 100, 48)),
        # Three tensors in, two gradients out.
        ("gaussian_nll_loss", "mean", Cost(84, 144, 4), Cost(96, 148, 96)),
        # One tensor in: magnitude, square and product.
        ("smooth_l1", "none", Cost(36, 48, 48), Cost(24, 96, 48)),
        ("scaled_loss", "sum", Cost(24, 48, 4), Cost(12, 52, 48)),
    ],
)
def test_cost_by_hand(name: str, reduction: str, forward: Cost, backward: Cost) -> None:
    op = BY_NAME[name]
    params = op.complete({"shape": [3, 4], "reduction": reduction})
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize(
    ("name", "param"), [("smooth_l1_loss", "beta"), ("smooth_l1", "sigma"), ("huber_loss", "delta")]
)
def test_a_parabola_needs_a_width(name: str, param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must be above 0"):
        BY_NAME[name].check_rules(BY_NAME[name].complete({"shape": [2], param: 0.0}))


@every_loss
def test_a_reduction_that_there_is_not_is_refused(op: Operator) -> None:
    with pytest.raises(InvalidParameter, match="parameter `reduction`"):
        op.param("reduction").check("median")


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("L1Loss", "l1_loss"),
        ("L2Loss", "mse_loss"),
        ("l2_loss", "mse_loss"),
        ("SmoothL1Loss", "smooth_l1_loss"),
        ("SigmoidBinaryCrossEntropyLoss", "bce_with_logits"),
        ("MakeLoss", "scaled_loss"),
    ],
)
def test_names_of_other_systems_are_known(alias: str, name: str) -> None:
    assert operator(alias).name == name


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("LinearRegressionOutput", "identity"),
        ("MAERegressionOutput", "identity"),
        ("SVMOutput", "identity"),
        ("LogisticRegressionOutput", "sigmoid"),
        ("SoftmaxOutput", "softmax"),
    ],
)
def test_an_output_whose_loss_is_only_in_its_gradient_is_what_it_computes(alias: str, name: str) -> None:
    assert operator(alias).name == name
