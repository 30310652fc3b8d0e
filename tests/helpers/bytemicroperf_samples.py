"""Small workloads of ByteMicroPerf in the formats of its three generations, written for these tests."""

from __future__ import annotations

from typing import Any

Objects = dict[str, list[dict[str, Any]]]

ROWS = {"arg_type": "default", "dtype": ["float32", "bfloat16"], "batch_size": [2, 4], "dim_size": [64]}
LOOKUP = {"arg_type": "default", "dtype": "float32", "src_batch_size.dst_batch_size": [[8, 16], [32, 64]],
          "dim_size": 32}  # fmt: skip
TOKENS = {"arg_type": "llm", "dtype": "bfloat16", "num_tokens": [8, 16], "hidden_size": 64}
TO_INT8 = {**TOKENS, "dst_dtype": "int8", "sp_size": 2}
NARROW = {"dtype.w_dtype.compute_dtype.dst_dtype": [["int8", "int8", "int8", "bfloat16"]]}
WIDE_NARROW = {"arg_type": "llm", "num_tokens": [8, 16], "hidden_size.new_hidden_size": [[64, 32]], **NARROW}
EXPERTS = {"num_experts.topk.ep_size": [[8, 2, 4]], "ep_rank": 1}
HEADS = {"q_head_num.kv_head_num.head_dim": [[4, 2, 32]]}
SEQUENCES = {"arg_type": "llm", "attn_mode": "prefill", "dtype": "bfloat16",
             "batch_size.cache_len.q_len": [[2, 0, 8], [1, 8, 4]], **HEADS}  # fmt: skip
LISTS = {"arg_type": "batch_llm", "attn_mode": "prefill", "dtype": "bfloat16", "q_head_num": 4, "kv_head_num": 2,
         "head_dim": 32, "q_lens": [3, 5], "cache_lens": [0, 7]}  # fmt: skip

V3_COMPUTE: Objects = {
    "gemm": [
        {"arg_type": "default", "dtype": ["float32", "float16"], "K.N": [[32, 64], [64, 32]], "M": [1, 8]},
        {"arg_type": "llm", "dtype": "bfloat16", "num_tokens": 16, "sp_size": 4, "hidden_size": 64,
         "new_hidden_size": 32},
    ],
    **{name: [ROWS] for name in ("add", "sub", "mul", "cast", "div", "cos", "sin", "exp", "log", "sqrt", "gelu", "silu",
                                 "reduce_max", "reduce_min", "reduce_sum", "layer_norm", "device2device")},
    "topk": [{**ROWS, "k": [2, 8]}],
    "rms_norm": [ROWS, TOKENS, {**ROWS, "add_residual": True}],
    "softmax": [ROWS, {"arg_type": "llm", "dtype": "float32", "batch_size": 1, "head_num": 2, "q_seq_len": [4, 8],
                       "kv_seq_len": 16}],
    **{name: [LOOKUP] for name in ("index_select", "gather", "embedding", "scatter", "index_add")},
    "scale_dynamic_quant": [TO_INT8],
    "add_rms_norm": [TOKENS],
    "add_rms_norm_dynamic_quant": [{**TO_INT8, "output_mode": ["none", "res", "norm"]},
                                   {**TO_INT8, "add_residual": False}],
    "head_rms_norm": [{"arg_type": "llm", "dtype": "bfloat16", "num_tokens": 8, "total_head_num": 6, "head_dim": 32,
                       "norm_head_start": 2, "norm_head_num": 3}],
    "head_rms_norm_dynamic_quant": [{"arg_type": "llm", "dtype": "bfloat16", "dst_dtype": "int8", "num_tokens": 8,
                                     "head_num": 4, "head_dim": 32}],
    "qk_rms_norm": [{"arg_type": "llm", "dtype": "bfloat16", "num_tokens": 8, "q_head_num": 4, "kv_head_num": 2,
                     "qk_head_dim": 32, "v_head_dim": 16}],
    "rotary_embedding": [{**SEQUENCES, "rope_offset.rope_dim": [[0, 32], [16, 16]]}, LISTS],
    "store_kv_cache": [{**SEQUENCES, "cache_dtype": ["bfloat16", "int8"], "store_mode": ["both", "k"],
                        "block_size": [0, 4]}, LISTS],
    "flash_attention": [{**SEQUENCES, "cache_dtype": ["bfloat16", "int8"], "block_size": [0, 4]}, LISTS],
    "quant_matmul": [{**WIDE_NARROW, "has_bias": [True, False]}],
    "quant_group_gemm_reduce_sum": [{**WIDE_NARROW, "sp_size": 2}],
    "swiglu": [TOKENS],
    "swiglu_dynamic_quant": [TO_INT8],
    "moe_gating_gemm": [{**TOKENS, "dst_dtype": "float32", "num_experts": 8}],
    "moe_softmax_topk": [{"arg_type": "llm", "dtype": "float32", "num_tokens": 8, "num_experts": 8, "topk": 2,
                          "compute_mode": ["pre-softmax", "post-softmax"]}],
    "moe_scatter_dynamic_quant": [{**TOKENS, "dst_dtype": "int8", **EXPERTS}],
    "moe_quant_group_gemm": [{**WIDE_NARROW, **EXPERTS}],
    "moe_quant_group_gemm_combine": [{**WIDE_NARROW, **EXPERTS, "sp_size": 2, "sp_rank": 1, "res_scale": 0.5}],
    "moe_swiglu": [{**TOKENS, **EXPERTS}],
    "moe_swiglu_dynamic_quant": [{**TOKENS, "dst_dtype": "int8", **EXPERTS}],
    "moe_gather": [{**TOKENS, **EXPERTS, "sp_size": 2, "sp_rank": 0, "res_scale": 1.0}],
}  # fmt: skip
"""Every operator of the third generation that works on one device."""

SMALL = [[[2, 4], [64]]]
V1_GROUPS: dict[str, Any] = {
    "gemm": {"M": [2, 4], "KN": [[16, 32], [32, 16]]},
    "gemv": {"M": [1], "K": [16, 32], "N": [64]},
    "batch_gemm": {"batch_size": [2, 3], "M": [4], "K": [8], "N": [16]},
    "group_gemm": {"gemm_group": [1, 2, 3], "batch": [1, 4], "KN": [[16, 32]]},
    **{name: {"inputs": SMALL} for name in ("sin", "cos", "exp", "exponential", "log", "sqrt", "silu", "gelu", "cast",
                                            "swiglu", "softmax", "reduce_sum", "reduce_max", "reduce_min", "sort",
                                            "unique", "scatter", "gather", "device2device", "dropout")},
    **{name: {"inputs": SMALL * 2} for name in ("add", "sub", "mul", "div", "index_add")},
    "layernorm": {"inputs": [*SMALL, [[64]]]},
    "hash_table": {"inputs": [[[32, 64], [16]], [[4], [5]]]},
    "topk": {"inputs": [[[4], [64]], [[4], [1, 2, 8]]]},
}  # fmt: skip
"""Every operator of the first generation that works on one device."""


def v1(operator: str, **rest: Any) -> dict[str, Any]:
    file = {"operator": operator, "iterations": 100, "input_shape_groups": V1_GROUPS[operator], "dtype": ["float32"]}
    return {**file, **rest}
