"""Computation of experts: only experts with tokens are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators import _moe as routing
from opmark.catalogue.operators.moe import COMBINE, GROUP_GEMM, MLP, MOE_OPERATORS, SWIGLU, SWIGLU_DYNAMIC_QUANT
from opmark.catalogue.operators.moe import QUANTIZED_GROUP_GEMM as QUANT_GROUP_GEMM
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

# 3 x 2 rows over 8 experts: two experts get none.
SPARSE: dict[str, Any] = {"num_tokens": 3, "num_experts": 8, "topk": 2}
SHARED: dict[str, Any] = {"num_tokens": 4, "num_experts": 4, "topk": 2, "ep_size": 2, "ep_rank": 1, "routing": "zipf"}
GEMM = {"hidden_size": 3, "new_hidden_size": 2}
WIDE = {**GEMM, "out_dtype": "float32"}
SIZES: list[tuple[Operator, dict[str, Any]]] = [
    (GROUP_GEMM, GEMM),
    (MLP, {"hidden_size": 3, "intermediate_size": 2}),
    (SWIGLU, {"hidden_size": 3}),
    (SWIGLU_DYNAMIC_QUANT, {"hidden_size": 3}),
    (QUANT_GROUP_GEMM, WIDE),
    (COMBINE, WIDE),
]


@pytest.mark.parametrize("where", [SPARSE, SHARED], ids=str)
@pytest.mark.parametrize(("op", "sizes"), SIZES)
def test_an_expert_without_a_token_is_not_read(
    op: Operator, sizes: dict[str, Any], where: dict[str, Any], bytes_read: Any
) -> None:
    params = op.complete({**where, **sizes})
    names = [name for name in op.inputs(params) if name != "ids"]
    ids = 4 * routing.dispatched_rows(params) if op is COMBINE else 0
    assert op.cost(params).bytes_read == bytes_read(op, params, *names) + ids


# 6 rows; 6 experts of 8 are busy.
COSTS = [
    (GROUP_GEMM, GEMM, Cost(2 * 6 * 3 * 2, 4 * (6 * 3 + 6 * 6), 4 * 6 * 2)),
    (MLP, {"hidden_size": 3, "intermediate_size": 2}, Cost(6 * 6 * 6 + 4 * 12, 4 * (18 + 6 * 18), 4 * 18)),
    (SWIGLU, {"hidden_size": 3}, Cost(4 * 18, 4 * 36, 4 * 18)),
    (SWIGLU_DYNAMIC_QUANT, {"hidden_size": 3}, Cost(6 * 18, 4 * 36 + 4 * 18, 18 + 4 * 6)),
    (QUANT_GROUP_GEMM, WIDE, Cost(2 * 6 * 3 * 2, 18 + 36 + 4 * (6 + 12), 4 * 12)),
    (QUANT_GROUP_GEMM, GEMM, Cost(2 * 6 * 3 * 2, 18 + 36 + 4 * (6 + 12), 2 * 12)),
    # Ids, weights and a residual of 3 x 2 come in; all of 3 tokens goes out, in full width.
    (COMBINE, WIDE, Cost(72 + 2 * 12 + 6, 18 + 36 + 4 * (6 + 12) + 4 * (6 + 6 + 6), 4 * 6)),
]


@pytest.mark.parametrize(("op", "sizes", "cost"), COSTS)
def test_cost_by_hand(op: Operator, sizes: dict[str, Any], cost: Cost) -> None:
    params = op.complete({**SPARSE, **sizes})
    assert (routing.dispatched_rows(params), routing.busy_experts(params)) == (6, 6)
    assert op.cost(params) == cost


def _tensors(op: Operator, params: dict[str, Any], live: Any) -> dict[str, Any]:
    return {name: live.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}


def test_every_row_meets_its_own_expert(numpy_cpu: Any) -> None:
    params = GROUP_GEMM.complete({**SHARED, **GEMM, "dtype": "float32"})
    arrays = {name: numpy_cpu.to_numpy(t) for name, t in _tensors(GROUP_GEMM, params, numpy_cpu).items()}
    expected = [arrays["weight"][e] @ row for e, row in zip(routing.expert_of_rows(params), arrays["x"], strict=True)]
    np.testing.assert_allclose(GROUP_GEMM.reference(params, **arrays), expected, rtol=1e-12)


@pytest.mark.parametrize("op", [GROUP_GEMM, MLP], ids=lambda op: op.name)
def test_one_call_for_all_experts_is_as_good_as_a_loop(op: Operator, torch_cpu: Any) -> None:
    params = op.complete({**op.preset("small"), "routing": "zipf"})
    tensors = _tensors(op, params, torch_cpu)
    loop, grouped = (implementation.build(params, **tensors)() for implementation in op.implementations_for("torch"))
    torch.testing.assert_close(loop, grouped, rtol=1e-4, atol=1e-4)


def test_operands_of_8_bits_are_neither_zero_nor_of_one_sign(torch_cpu: Any) -> None:
    params = QUANT_GROUP_GEMM.complete(QUANT_GROUP_GEMM.preset("small"))
    tensors = _tensors(QUANT_GROUP_GEMM, params, torch_cpu)
    for name in ("x", "weight"):
        values = tensors[name].float()
        assert len(values.unique()) > 200
        assert abs(float(values.mean())) < 3


def test_the_residual_of_another_rank_is_not_added(numpy_cpu: Any) -> None:
    given = {**SPARSE, **WIDE, "num_tokens": 4, "sp_size": 2, "res_scale": 3.0}
    first, second = (COMBINE.complete({**given, "sp_rank": rank}) for rank in (0, 1))
    arrays = {name: numpy_cpu.to_numpy(t) for name, t in _tensors(COMBINE, first, numpy_cpu).items()}
    difference = COMBINE.reference(first, **arrays) - COMBINE.reference(second, **arrays)
    expected = 3 * np.concatenate([arrays["residual"], -arrays["residual"]])
    np.testing.assert_allclose(difference, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("op", [*MOE_OPERATORS, QUANT_GROUP_GEMM, COMBINE], ids=lambda op: op.name)
def test_the_large_one_is_the_work_of_a_rank(op: Operator) -> None:
    params = op.complete(op.preset("large"))
    assert routing.experts(params) == params["num_experts"] // params["ep_size"] < params["num_experts"]


def test_products_are_found_by_the_names_of_their_kernels() -> None:
    assert operator("grouped_mm") is GROUP_GEMM
    assert operator("quant_group_gemm") is QUANT_GROUP_GEMM


def test_the_result_of_8_bits_is_bfloat16_unless_asked_for_more() -> None:
    assert QUANT_GROUP_GEMM.complete(QUANT_GROUP_GEMM.preset("small"))["out_dtype"] == "bfloat16"
