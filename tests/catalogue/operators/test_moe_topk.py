"""moe_softmax_topk, group_topk: chosen experts, their weights, and how results are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.moe_topk import GROUP_TOPK, SOFTMAX_TOPK
from opmark.errors import InvalidParameter, WrongResult
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost
from opmark.worker.verify.outputs import check_outputs

SOFT: dict[str, Any] = {"num_tokens": 2, "num_experts": 4, "topk": 2}
GROUPED: dict[str, Any] = {"num_tokens": 1, "num_experts": 6, "topk": 2, "groups": 3, "topk_groups": 1}
LOGITS = np.log([[0.1, 0.4, 0.2, 0.3], [0.7, 0.1, 0.15, 0.05]])


def _run(op: Operator, params: dict[str, Any], framework: str, live: Any) -> tuple[Any, dict[str, Any]]:
    tensors = {n: live.tensor(spec, i) for i, (n, spec) in enumerate(op.inputs(params).items())}
    (implementation,) = op.implementations_for(framework)
    outputs = tuple(np.array(live.to_numpy(output)) for output in implementation.build(params, **tensors)())
    return outputs, {n: live.to_numpy(t) for n, t in tensors.items()}


def test_a_softmax_before_choosing_keeps_the_shares_of_all() -> None:
    weights, *_ = SOFTMAX_TOPK.reference(SOFTMAX_TOPK.complete(SOFT), logits=LOGITS)
    np.testing.assert_allclose(weights, [[0.4, 0.3], [0.7, 0.15]])


def test_a_softmax_after_choosing_shares_among_the_chosen() -> None:
    params = SOFTMAX_TOPK.complete({**SOFT, "compute_mode": "post-softmax"})
    weights, *_ = SOFTMAX_TOPK.reference(params, logits=LOGITS)
    np.testing.assert_allclose(weights, [[4 / 7, 3 / 7], [0.7 / 0.85, 0.15 / 0.85]])


def test_costs_by_hand() -> None:
    """Weights are float32 and indices int64 for every type of the scores."""
    params = SOFTMAX_TOPK.complete({**SOFT, "dtype": "bfloat16"})
    assert SOFTMAX_TOPK.cost(params) == Cost(4 * 8, 2 * 8, 4 * (4 + 8))
    assert SOFTMAX_TOPK.cost({**params, "compute_mode": "post-softmax"}).flops == 4 * 4
    params = GROUP_TOPK.complete({**GROUPED, "dtype": "bfloat16"})
    assert GROUP_TOPK.cost(params) == Cost(4 * 6 + 3 + 3 * 2, 2 * 6 + 4 * 6, 2 * (4 + 8))


@pytest.mark.parametrize(("op", "given"), [(SOFTMAX_TOPK, SOFT), (GROUP_TOPK, {**GROUPED, "topk_groups": 2})])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_indices_count_as_much_as_weights(op: Operator, given: dict[str, Any], framework: str, request: Any) -> None:
    params = op.complete(given)
    (weights, indices), arrays = _run(op, params, framework, request.getfixturevalue(f"{framework}_cpu"))
    assert str(indices.dtype) == "int64"
    check_outputs(op, params, (weights, indices), arrays)
    for wrong in (indices[:, ::-1], np.repeat(indices[:, :1], 2, axis=1), (indices + 1) % params["num_experts"]):
        with pytest.raises(WrongResult):
            check_outputs(op, params, (weights, wrong), arrays)
    with pytest.raises(WrongResult):
        check_outputs(op, params, (weights, indices + 100), arrays)


def test_of_equal_scores_either_may_be_taken() -> None:
    params = SOFTMAX_TOPK.complete({**SOFT, "num_tokens": 1})
    logits = np.log([[0.4, 0.25, 0.1, 0.25]])
    for second in (1, 3):
        outputs = (np.array([[0.4, 0.25]]), np.array([[0, second]]))
        check_outputs(SOFTMAX_TOPK, params, outputs, {"logits": logits})


def _chosen(scores: list[float], bias: list[float] | None = None, **change: Any) -> tuple[Any, Any]:
    """Choose experts by scores, which are sigmoids."""
    given = np.array([scores])
    arrays = {"logits": np.log(given / (1 - given)), "bias": np.array(bias or [0.0] * len(scores))}
    params = GROUP_TOPK.complete({**GROUPED, "dtype": "float32", **change})
    (implementation,) = GROUP_TOPK.implementations_for("numpy")
    weights, indices = implementation.build(params, **arrays)()
    return weights[0], indices[0]


def test_the_best_expert_is_left_out_where_its_group_is_not_the_best() -> None:
    weights, indices = _chosen([0.9, 0.1, 0.6, 0.6001, 0.5, 0.5], scale=2.0)
    assert indices.tolist() == [3, 2]
    np.testing.assert_allclose(weights, [1, 1], rtol=1e-3)


def test_the_bias_decides_who_is_chosen_but_not_the_weight() -> None:
    weights, indices = _chosen([0.9, 0.8, 0.2, 0.6, 0.5, 0.5], [0, 0, 1, 1, 0, 0])
    assert indices.tolist() == [3, 2]
    np.testing.assert_allclose(weights, [0.75, 0.25], rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "given", "param"),
    [
        (SOFTMAX_TOPK, {**SOFT, "topk": 5}, "topk"),
        (SOFTMAX_TOPK, {**SOFT, "sp_size": 3}, "sp_size"),
        (GROUP_TOPK, {**GROUPED, "groups": 4}, "groups"),
        (GROUP_TOPK, {**GROUPED, "groups": 6}, "groups"),
        (GROUP_TOPK, {**GROUPED, "topk_groups": 4}, "topk_groups"),
        (GROUP_TOPK, {**GROUPED, "topk": 3}, "topk"),
    ],
)
def test_what_cannot_be_chosen_is_refused(op: Operator, given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        op.check_rules(op.complete(given))


def test_names_of_other_systems_are_found() -> None:
    assert operator("grouped_topk") is GROUP_TOPK
    assert operator("topk_softmax") is SOFTMAX_TOPK
