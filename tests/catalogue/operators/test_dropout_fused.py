"""softmax_dropout, bias_dropout_add: checks of random results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.dropout import BIAS_DROPOUT_ADD, FUSED_DROPOUT_OPERATORS, SOFTMAX_DROPOUT
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.schema import Cost

every_operator = pytest.mark.parametrize("op", FUSED_DROPOUT_OPERATORS, ids=lambda op: op.name)
GENERATOR = np.random.default_rng(0)
X, BIAS, RESIDUAL = GENERATOR.uniform(0.5, 1.5, (64, 65)), GENERATOR.uniform(0.5, 1.5, 65), GENERATOR.random((64, 65))


def inputs(op: Operator) -> dict[str, Any]:
    return {"x": X} if op is SOFTMAX_DROPOUT else {"x": X, "bias": BIAS, "residual": RESIDUAL}


def drawn(op: Operator, p: float, values: Any = None) -> Any:
    """Return a result that drops elements with probability p."""
    params = op.complete({"shape": [64, 65], "p": 0.25})
    kept = op.reference(params, **inputs(op))[0] if values is None else values
    dropped = np.random.default_rng(1).random(X.shape) < p
    return params, np.where(dropped, 0.0 if op is SOFTMAX_DROPOUT else RESIDUAL, kept)


def agrees(op: Operator, params: Any, output: Any) -> bool:
    assert op.observe is not None
    seen, expected = op.observe(params, output, **inputs(op)), op.reference(params, **inputs(op))
    return all(np.allclose(one, other, rtol=1e-9) for one, other in zip(seen, expected, strict=True))


def test_cost_by_hand() -> None:
    assert SOFTMAX_DROPOUT.cost(SOFTMAX_DROPOUT.complete({"shape": [3, 4]})) == Cost(60, 48, 48)
    assert BIAS_DROPOUT_ADD.cost(BIAS_DROPOUT_ADD.complete({"shape": [3, 4]})) == Cost(36, 112, 48)


@every_operator
def test_a_result_that_drops_as_many_as_it_should_is_right(op: Operator) -> None:
    assert agrees(op, *drawn(op, 0.25))


@every_operator
@pytest.mark.parametrize("p", [0.0, 0.15, 0.4, 1.0])
def test_a_result_that_drops_fewer_or_more_is_wrong(op: Operator, p: float) -> None:
    assert not agrees(op, *drawn(op, p))


@every_operator
def test_a_result_that_does_not_scale_what_it_keeps_is_wrong(op: Operator) -> None:
    unscaled = op.reference(op.complete({"shape": [64, 65], "p": 0.0}), **inputs(op))[0]
    assert not agrees(op, *drawn(op, 0.25, unscaled))


@every_operator
def test_a_result_that_drops_every_fourth_is_wrong(op: Operator) -> None:
    params, _ = drawn(op, 0.25)
    kept, dropped = op.reference(params, **inputs(op))[0], np.arange(X.size).reshape(X.shape) % 4 == 0
    assert not agrees(op, params, np.where(dropped, 0.0 if op is SOFTMAX_DROPOUT else RESIDUAL, kept))


@every_operator
def test_dropping_everything_is_refused(op: Operator) -> None:
    with pytest.raises(InvalidParameter, match="parameter `p` must be below 1"):
        op.check_rules(op.complete({"shape": [3, 4], "p": 1.0}))


def _softmax_gradient(p: float, dropped: Any, seed: Any) -> Any:
    shares = np.exp(X) / np.exp(X).sum(axis=-1, keepdims=True)
    passed = np.where(dropped, 0.0, seed / (1 - p))
    return shares * (passed - (shares * passed).sum(axis=-1, keepdims=True))


def _gradients_agree(op: Operator, params: Any, gradients: list[Any], seed: Any) -> bool:
    assert op.observe_gradients is not None
    pairs = op.observe_gradients(params, gradients, [seed], **inputs(op))
    return all(one.shape == due.shape and np.allclose(one, due, rtol=1e-6, atol=1e-9) for one, due in pairs)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_softmax_dropout_tells_what_was_dropped(p: float, seed: int) -> None:
    """Whatever was dropped, and however much, the gradient is found right, and a tenth more of it is not."""
    generator = np.random.default_rng(seed)
    params, incoming = SOFTMAX_DROPOUT.complete({"shape": [64, 65], "p": p}), generator.uniform(-1, 1, X.shape)
    right = _softmax_gradient(p, generator.random(X.shape) < p, incoming)
    assert _gradients_agree(SOFTMAX_DROPOUT, params, [right], incoming)
    assert not _gradients_agree(SOFTMAX_DROPOUT, params, [1.1 * right], incoming)
    assert not _gradients_agree(SOFTMAX_DROPOUT, params, [right[:, 1:]], incoming)
    more = _softmax_gradient(p, generator.random(X.shape) < p + 0.08, incoming)
    assert not _gradients_agree(SOFTMAX_DROPOUT, params, [more], incoming)


def test_the_bias_of_bias_dropout_add_has_the_sums_of_the_gradient_of_x() -> None:
    generator = np.random.default_rng(0)
    params, incoming = BIAS_DROPOUT_ADD.complete({"shape": [64, 65], "p": 0.25}), generator.uniform(-1, 1, X.shape)
    of_x = np.where(generator.random(X.shape) < 0.25, 0.0, incoming / 0.75)
    assert _gradients_agree(BIAS_DROPOUT_ADD, params, [of_x, of_x.sum(axis=0)], incoming)
    assert not _gradients_agree(BIAS_DROPOUT_ADD, params, [of_x, incoming.sum(axis=0)], incoming)
    assert not _gradients_agree(BIAS_DROPOUT_ADD, params, [incoming, incoming.sum(axis=0)], incoming)
