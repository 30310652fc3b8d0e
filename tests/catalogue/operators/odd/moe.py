"""Mixtures of experts: experts without a token, ranks that hold a part of them."""

from __future__ import annotations

from typing import Any

# Of 5 x 2 rows over 12 experts, some get none.
_SPARSE = {"num_tokens": 5, "num_experts": 12, "topk": 2}
_SHARED = {"num_tokens": 7, "num_experts": 8, "topk": 3, "ep_size": 2, "ep_rank": 1, "routing": "zipf"}
_LOCAL = {"num_tokens": 7, "num_experts": 8, "topk": 3, "ep_size": 2, "ep_rank": 1, "routing": "local"}

ODD: dict[str, list[dict[str, Any]]] = {
    "moe_gating_gemm": [
        {"num_tokens": 5, "hidden_size": 33, "num_experts": 7},
        {"num_tokens": 7, "hidden_size": 9, "num_experts": 3, "sp_size": 3},
        {"num_tokens": 5, "hidden_size": 33, "num_experts": 7, "gate_dtype": "same"},
    ],
    "moe_softmax_topk": [
        {"num_tokens": 5, "num_experts": 7, "topk": 3, "compute_mode": "post-softmax"},
        {"num_tokens": 7, "num_experts": 5, "topk": 5, "sp_size": 3},
        {"num_tokens": 33, "num_experts": 9, "topk": 2},
    ],
    "group_topk": [
        {"num_tokens": 5, "num_experts": 12, "topk": 3, "groups": 4, "topk_groups": 2, "scale": 2.5},
        {"num_tokens": 7, "num_experts": 6, "topk": 2, "groups": 1, "topk_groups": 1, "sp_size": 3},
    ],
    "moe_scatter_dynamic_quant": [
        {**_SPARSE, "hidden_size": 9},
        {**_SHARED, "hidden_size": 5},
        {**_LOCAL, "hidden_size": 5},
    ],
    "moe_gather": [
        {**_SPARSE, "hidden_size": 9, "res_scale": 0.5},
        {**_SHARED, "hidden_size": 5, "sp_size": 3, "sp_rank": 1},
    ],
    "moe_group_gemm": [
        {**_SPARSE, "hidden_size": 16, "new_hidden_size": 8},
        {**_SHARED, "hidden_size": 8, "new_hidden_size": 24},
    ],
    "moe_quant_group_gemm": [
        {**_SPARSE, "hidden_size": 16, "new_hidden_size": 8},
        {**_SHARED, "hidden_size": 9, "new_hidden_size": 5},
    ],
    "moe_quant_group_gemm_combine": [
        {**_SPARSE, "hidden_size": 16, "new_hidden_size": 8, "res_scale": 0.5},
        {**_SHARED, "hidden_size": 9, "new_hidden_size": 5, "sp_size": 3, "sp_rank": 1},
    ],
    "moe_mlp": [
        {**_SPARSE, "hidden_size": 16, "intermediate_size": 8},
        {**_SHARED, "hidden_size": 8, "intermediate_size": 24},
    ],
    "moe_swiglu": [{**_SPARSE, "hidden_size": 9}, {**_SHARED, "hidden_size": 5}],
    "moe_swiglu_dynamic_quant": [{**_SPARSE, "hidden_size": 9}, {**_SHARED, "hidden_size": 5}],
}
