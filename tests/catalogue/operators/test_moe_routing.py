"""moe_gating_gemm, moe_scatter_dynamic_quant, moe_gather."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators import _moe as routing
from opmark.catalogue.operators.moe_routing import GATHER, GATING, SCATTER
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.schema import Cost

SPARSE: dict[str, Any] = {"num_tokens": 3, "num_experts": 8, "topk": 2, "hidden_size": 4}
SHARED: dict[str, Any] = {**SPARSE, "num_tokens": 5, "ep_size": 2, "ep_rank": 1, "routing": "zipf"}
LOCAL: dict[str, Any] = {**SHARED, "routing": "local"}


def _arrays(op: Operator, params: dict[str, Any], live: Any) -> dict[str, Any]:
    return {n: live.to_numpy(live.tensor(spec, i)) for i, (n, spec) in enumerate(op.inputs(params).items())}


@pytest.mark.parametrize("dtype", GATING.param("dtype").choices)
def test_the_weight_of_a_gate_is_not_converted_in_a_launch(dtype: str) -> None:
    params = GATING.complete({"num_tokens": 3, "hidden_size": 4, "num_experts": 8, "dtype": dtype})
    assert GATING.inputs(params)["weight"].dtype == "float32"
    same = {**params, "gate_dtype": "same"}
    assert GATING.inputs(same)["weight"].dtype == dtype
    size = {"float32": 4}.get(dtype, 2)
    assert GATING.cost(same) == Cost(2 * 3 * 4 * 8, (3 * 4 + 4 * 8) * size, 3 * 8 * 4)


def test_rows_of_local_routing_come_from_few_tokens() -> None:
    """48 tokens for 8 ranks, 4 experts each: 24 rows from 6 tokens, and not from 24."""
    local = {"num_tokens": 48, "num_experts": 64, "topk": 4, "ep_size": 8, "hidden_size": 16, "routing": "local"}
    params = SCATTER.complete(local)
    assert (routing.dispatched_rows(params), routing.distinct_tokens(params)) == (24, 6)
    balanced = SCATTER.complete({**local, "routing": "balanced"})
    assert routing.distinct_tokens(balanced) == 24
    assert SCATTER.cost(balanced).bytes_read - SCATTER.cost(params).bytes_read == (24 - 6) * 16 * 4
    with pytest.raises(InvalidParameter, match="at most the experts of a rank where routing is local"):
        SCATTER.check_rules({**params, "topk": 9})


@pytest.mark.parametrize("given", [SPARSE, SHARED, LOCAL], ids=str)
def test_only_tokens_with_an_expert_here_are_read(given: dict[str, Any], bytes_read: Any) -> None:
    params = SCATTER.complete(given)
    choices = 4 * params["num_tokens"] * params["topk"]
    assert SCATTER.cost(params).bytes_read == bytes_read(SCATTER, params) + choices


def test_cost_of_scattering_by_hand() -> None:
    """3 tokens to 6 of 8 experts: 6 rows; factors of 6 experts, all choices, 6 weights."""
    params = SCATTER.complete({**SPARSE, "dtype": "bfloat16"})
    read = 2 * 12 + 4 * (6 * 4) + 4 * 6 + 4 * 6
    assert SCATTER.cost(params) == Cost(2 * 24, read, 24 + 4 * (3 * 6) + 4 * 8 + 4 * 9)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("given", [SPARSE, SHARED, LOCAL], ids=str)
def test_what_is_scattered_says_where_it_came_from(given: dict[str, Any], framework: str, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    params = SCATTER.complete(given)
    tensors = {n: live.tensor(spec, i) for i, (n, spec) in enumerate(SCATTER.inputs(params).items())}
    (implementation,) = SCATTER.implementations_for(framework)
    outputs = implementation.build(params, **tensors)()
    assert SCATTER.cost(params).bytes_written == sum(output.nbytes for output in outputs)
    numbers, scale, token, weight, counts, offsets = (live.to_numpy(output) for output in outputs)
    arrays = {n: live.to_numpy(t) for n, t in tensors.items()}
    assert tuple(counts) == routing.loads(params)
    assert offsets.tolist() == [0, *np.cumsum(counts)]
    for row, expert in enumerate(np.repeat(np.arange(len(counts)), counts) + routing.local_experts(params).start):
        (choice,) = np.nonzero(arrays["chosen"][token[row]] == expert)[0]
        assert weight[row] == arrays["weights"][token[row], choice]
        expected = arrays["x"][token[row]] * arrays["smooth"][expert]
        np.testing.assert_allclose(numbers[row] * scale[row], expected, atol=0.51 * scale[row])


def test_cost_of_gathering_by_hand() -> None:
    """6 rows of 4 elements, ids, weights and a residual of 3 tokens in; 3 tokens out."""
    params = GATHER.complete({**SPARSE, "dtype": "bfloat16"})
    assert GATHER.cost(params) == Cost(2 * 24 + 12, 2 * 24 + 4 * 6 + 4 * 6 + 2 * 12, 2 * 12)


def test_rows_come_back_to_their_tokens(numpy_cpu: Any) -> None:
    params = GATHER.complete({**SHARED, "sp_size": 2, "sp_rank": 1, "res_scale": 0.5})
    arrays = _arrays(GATHER, params, numpy_cpu)
    expected = np.zeros((5, 4))
    expected[2:4] = arrays["residual"] / 2
    for row, token in enumerate(arrays["ids"]):
        expected[token] += arrays["weights"][row] * arrays["x"][row]
    np.testing.assert_allclose(GATHER.reference(params, **arrays), expected, rtol=1e-12)


def test_scores_are_float32_whatever_comes_in() -> None:
    params = GATING.complete({"num_tokens": 5, "sp_size": 2, "hidden_size": 4, "num_experts": 3, "dtype": "bfloat16"})
    assert GATING.result_dtype(params) == "float32"
    assert GATING.cost(params) == Cost(2 * 2 * 4 * 3, 2 * (2 * 4) + 4 * (3 * 4), 4 * 2 * 3)


@pytest.mark.parametrize(("change", "param"), [({"sp_size": 4}, "sp_size"), ({"sp_size": 2, "sp_rank": 2}, "sp_rank")])
def test_ranks_that_are_not_there_are_refused(change: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must"):
        GATHER.check_rules(GATHER.complete({**SPARSE, **change}))
