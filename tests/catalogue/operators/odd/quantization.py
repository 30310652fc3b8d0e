"""Operators that round to 8 bits, or multiply numbers of 8 bits."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "quantize": [{"shape": [5, 7]}, {"shape": [5, 7], "zero_point": 9}, {"shape": [3, 1, 11], "per": "tensor"}],
    "dequantize": [{"shape": [5, 7]}, {"shape": [5, 7], "zero_point": -3}, {"shape": [3, 1, 11], "per": "tensor"}],
    "scale_dynamic_quant": [{"num_tokens": 5, "hidden_size": 33}, {"num_tokens": 7, "hidden_size": 3, "sp_size": 3}],
    "add_rms_norm_dynamic_quant": [
        {"num_tokens": 5, "hidden_size": 33, "output_mode": "res"},
        {"num_tokens": 7, "hidden_size": 17, "sp_size": 3, "output_mode": "norm", "eps": 0.1},
        {"num_tokens": 3, "hidden_size": 17, "add_residual": False},
        {"num_tokens": 5, "hidden_size": 33, "output_mode": "both"},
    ],
    "head_rms_norm_dynamic_quant": [
        {"num_tokens": 5, "heads": 3, "head_dim": 9},
        {"num_tokens": 7, "heads": 1, "head_dim": 17, "sp_size": 3, "eps": 0.1},
    ],
    "swiglu_dynamic_quant": [{"num_tokens": 5, "hidden_size": 33}, {"num_tokens": 7, "hidden_size": 3, "sp_size": 3}],
    "quant_matmul": [
        {"num_tokens": 5, "hidden_size": 16, "new_hidden_size": 7, "has_bias": True},
        {"num_tokens": 7, "hidden_size": 33, "new_hidden_size": 3, "sp_size": 3},
    ],
    "quant_group_gemm_reduce_sum": [
        {"num_tokens": 17, "hidden_size": 16, "new_hidden_size": 7, "sp_size": 3},
        {"num_tokens": 1, "hidden_size": 33, "new_hidden_size": 3, "sp_size": 1},
    ],
    "quant_batched_matmul": [{"B": 3, "M": 5, "N": 7, "K": 16}, {"B": 1, "M": 1, "N": 3, "K": 33}],
    "quant_grouped_gemm": [{"M": [5, 1, 17], "N": 7, "K": 16}, {"M": [3], "N": 3, "K": 33}],
}
