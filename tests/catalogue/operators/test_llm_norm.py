"""add_rms_norm, head_rms_norm, qk_rms_norm: normalised and unchanged parts, and tokens shared by ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.llm_norm import ADD_RMS_NORM, HEAD_RMS_NORM, OPERATORS, QK_RMS_NORM
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.schema import Cost

ADD: dict[str, Any] = {"num_tokens": 3, "hidden_size": 8}
HEAD: dict[str, Any] = {"num_tokens": 3, "heads": 5, "head_dim": 4, "norm_start": 1, "norm_heads": 2}
QK: dict[str, Any] = {"num_tokens": 3, "q_heads": 2, "kv_heads": 1, "qk_head_dim": 4, "v_head_dim": 3}
GIVEN = list(zip(OPERATORS, (ADD, HEAD, QK), strict=True))


def _tensors(op: Operator, params: dict[str, Any], live: Any) -> dict[str, Any]:
    return {name: live.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}


def test_cost_of_a_sum_and_its_norm_by_hand() -> None:
    params = ADD_RMS_NORM.complete(ADD)
    assert ADD_RMS_NORM.cost(params) == Cost(5 * 24, 4 * (48 + 8), 4 * 48)
    assert ADD_RMS_NORM.phase_cost(params, "backward") == Cost(10 * 24, 4 * (72 + 8), 4 * (48 + 8))


@pytest.mark.parametrize(("op", "given"), GIVEN[1:])
def test_heads_that_stay_as_they_are_cost_nothing(op: Operator, given: dict[str, Any], bytes_read: Any) -> None:
    """In place, unchanged heads are not read, though they are in the result: they are subtracted."""
    params = op.complete(given)
    stays = 3 * 3 * 4 if op is QK_RMS_NORM else 0
    assert op.cost(params).bytes_read == bytes_read(op, params) - stays


def test_cost_of_heads_by_hand() -> None:
    params = HEAD_RMS_NORM.complete(HEAD)
    assert HEAD_RMS_NORM.cost(params) == Cost(4 * 24, 4 * (24 + 4), 4 * 24)
    assert HEAD_RMS_NORM.phase_cost(params, "backward") == Cost(9 * 24, 4 * (48 + 4), 4 * (60 + 4))
    assert QK_RMS_NORM.cost(QK_RMS_NORM.complete(QK)) == Cost(4 * 36, 4 * (36 + 8), 4 * 36)


@pytest.mark.parametrize(("op", "given"), GIVEN)
def test_ranks_share_the_tokens(op: Operator, given: dict[str, Any]) -> None:
    shared = op.complete({**given, "num_tokens": 7, "sp_size": 2})
    assert op.cost(shared) == op.cost(op.complete(given))
    with pytest.raises(InvalidParameter, match="parameter `sp_size` must be at most num_tokens=1"):
        op.check_rules(op.complete({**given, "num_tokens": 1, "sp_size": 2}))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_queries_and_keys_are_really_normalised_in_place(framework: str, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    params = QK_RMS_NORM.complete({**QK, "eps": 0.0})
    tensors = _tensors(QK_RMS_NORM, params, live)
    before = np.array(live.to_numpy(tensors["packed_qkv"]))
    (implementation,) = QK_RMS_NORM.implementations_for(framework)
    assert implementation.build(params, **tensors)() is tensors["packed_qkv"]
    after = live.to_numpy(tensors["packed_qkv"])
    squares = np.square(after[:, :12].reshape(3, 3, 4)).mean(axis=-1)
    np.testing.assert_allclose(squares, np.ones((3, 3)), rtol=1e-5)
    np.testing.assert_array_equal(after[:, 12:], before[:, 12:])


def test_repeating_it_in_place_leads_neither_to_zero_nor_to_infinity(torch_cpu: Any) -> None:
    params = QK_RMS_NORM.complete({**QK, "dtype": "float16"})
    tensors = _tensors(QK_RMS_NORM, params, torch_cpu)
    (implementation,) = QK_RMS_NORM.implementations_for("torch")
    launch = implementation.build(params, **tensors)
    first = np.abs(torch_cpu.to_numpy(launch()))
    for _ in range(2000):
        launch()
    np.testing.assert_allclose(np.abs(torch_cpu.to_numpy(tensors["packed_qkv"])), first, rtol=0.02)


def test_the_second_output_is_the_sum(torch_cpu: Any) -> None:
    params = ADD_RMS_NORM.complete(ADD)
    tensors = _tensors(ADD_RMS_NORM, params, torch_cpu)
    (implementation,) = ADD_RMS_NORM.implementations_for("torch")
    normed, added = implementation.build(params, **tensors)()
    torch.testing.assert_close(added, tensors["x"] + tensors["residual"])
    torch.testing.assert_close(normed, torch.nn.functional.rms_norm(added, (8,), tensors["weight"], 1e-5))


@pytest.mark.parametrize("change", [{"norm_heads": 5}, {"norm_start": 5, "norm_heads": 0}], ids=str)
def test_heads_that_are_not_there_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match="parameter `norm_heads` must end within the 5 heads"):
        HEAD_RMS_NORM.check_rules(HEAD_RMS_NORM.complete({**HEAD, **change}))
