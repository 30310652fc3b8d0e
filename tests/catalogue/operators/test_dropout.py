"""Dropout: dropped elements, their share, and the kept elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.dropout import DROPOUT_OPERATORS, DropoutKind
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in DROPOUT_OPERATORS}
every_operator = pytest.mark.parametrize("op", DROPOUT_OPERATORS, ids=lambda op: op.name)
SHAPE = [20, 50, 6, 5]
X = np.random.default_rng(0).uniform(0.5, 1.5, SHAPE)


def _passes(op: Operator, output: Any, p: float = 0.5) -> bool:
    params = op.complete({"shape": SHAPE, "p": p})
    assert op.observe
    found, expected = op.observe(params, output, x=X), op.reference(params, x=X)
    return all(np.allclose(one, other, rtol=1e-12) for one, other in zip(found, expected, strict=True))


def _dropped(op: Operator, p: float = 0.5) -> Any:
    params = op.complete({"shape": SHAPE, "p": p, "dtype": "float64"})
    return np.asarray(op.implementations_for("numpy")[0].build(params, x=X)())


@every_operator
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_dropout_passes_as_such(op: Operator, p: float) -> None:
    assert _passes(op, _dropped(op, p), p)


@every_operator
def test_another_probability_is_found(op: Operator) -> None:
    assert not _passes(op, _dropped(op, 0.7), 0.5)


@every_operator
def test_nothing_dropped_is_found(op: Operator) -> None:
    factor, shift, _ = DropoutKind(op.name in ("alpha_dropout", "feature_alpha_dropout"), False).affine({"p": 0.5})
    assert not _passes(op, factor * X + shift)


@every_operator
def test_a_wrong_scale_is_found(op: Operator) -> None:
    assert not _passes(op, _dropped(op) * 1.001)


def test_a_mask_of_stripes_is_found() -> None:
    stripes = np.arange(X.size).reshape(SHAPE) % 2 == 0
    assert not _passes(BY_NAME["dropout"], np.where(stripes, 2 * X, 0.0))


def test_a_channel_is_dropped_as_a_whole() -> None:
    assert not _passes(BY_NAME["dropout2d"], _dropped(BY_NAME["dropout"]))
    assert not _passes(BY_NAME["feature_alpha_dropout"], _dropped(BY_NAME["alpha_dropout"]))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_alpha_dropout_keeps_mean_and_variance(p: float) -> None:
    """The values have mean 0 and variance 1."""
    x = np.random.default_rng(0).normal(size=(1000, 500))
    op = BY_NAME["alpha_dropout"]
    params = op.complete({"shape": [1000, 500], "p": p, "dtype": "float64"})
    output = op.implementations_for("numpy")[0].build(params, x=x)()
    assert output.mean() == pytest.approx(0, abs=0.02)
    assert output.var() == pytest.approx(1, abs=0.02)


def test_gradients_that_are_not_the_incoming_ones_are_found() -> None:
    op = BY_NAME["dropout"]
    params = op.complete({"shape": SHAPE})
    seed = np.random.default_rng(1).uniform(-1, 1, SHAPE)
    mask = np.random.default_rng(2).random(SHAPE) < 0.5

    def agree(gradient: Any) -> bool:
        assert op.observe_gradients
        pairs = op.observe_gradients(params, [gradient], [seed], x=X)
        return all(one.shape == other.shape and np.allclose(one, other) for one, other in pairs)

    assert agree(np.where(mask, 2 * seed, 0))
    assert not agree(np.where(mask, seed, 0))
    assert not agree(2 * seed)
    assert not agree(np.zeros(SHAPE))
    assert not agree(np.where(mask, 2 * seed, 0)[1:])


def test_cost_by_hand() -> None:
    params = {"shape": [2, 3, 4, 5], "p": 0.5, "dtype": "float32"}
    # 120 elements of 4 bytes; back, a byte tells of each decision: an element or a channel.
    assert BY_NAME["dropout"].phase_cost(params, "forward") == Cost(120, 480, 480)
    assert BY_NAME["dropout"].phase_cost(params, "backward") == Cost(120, 480 + 120, 480)
    assert BY_NAME["dropout2d"].phase_cost(params, "backward") == Cost(120, 480 + 6, 480)
    assert BY_NAME["alpha_dropout"].phase_cost(params, "forward") == Cost(240, 480, 480)


@every_operator
def test_dropping_everything_is_refused(op: Operator) -> None:
    with pytest.raises(InvalidParameter, match="parameter `p` must be below 1"):
        op.check_rules(op.complete({"shape": SHAPE, "p": 1.0}))


@pytest.mark.parametrize("name", ["dropout2d", "feature_alpha_dropout"])
def test_channels_need_their_axis(name: str) -> None:
    with pytest.raises(InvalidParameter, match="parameter `shape` must have 3 to 5 axes"):
        BY_NAME[name].check_rules(BY_NAME[name].complete({"shape": [4, 5]}))


def test_names_of_other_systems_are_known() -> None:
    assert operator("Dropout").name == "dropout"
    assert operator("dropout1d").name == "dropout2d"
