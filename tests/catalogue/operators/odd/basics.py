"""The operators that there were first."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "add": [{"shape": [5, 7]}, {"shape": [1]}, {"shape": [3, 1, 11]}],
    "exp": [{"shape": [5, 7]}, {"shape": [1]}],
    "gelu": [{"shape": [5, 7], "approximate": "tanh"}, {"shape": [33, 3]}],
    "cast": [{"shape": [5, 7]}],
    "matmul": [{"M": 5, "N": 7, "K": 3}, {"M": 1, "N": 1, "K": 1}, {"M": 17, "N": 33, "K": 129}],
    "batched_matmul": [{"B": 3, "M": 5, "N": 7, "K": 3}, {"B": 2, "M": 17, "N": 33, "K": 129}],
    "softmax": [
        {"shape": [5, 7]}, {"shape": [4, 9, 5], "axis": 1}, {"shape": [3, 1000]}, {"shape": [513, 5], "axis": 0},
    ],
    "layer_norm": [{"shape": [5, 33]}, {"shape": [3, 4, 17], "eps": 0.1}, {"shape": [129, 33]},
                   {"shape": [5, 33], "bias": False}],
    "rms_norm": [{"shape": [5, 33]}, {"shape": [3, 4, 17], "eps": 0.1}, {"shape": [129, 33]}],
    "reduce_sum": [{"shape": [5, 7]}, {"shape": [4, 9, 5], "axis": 1}, {"shape": [129, 33], "axis": 0}],
    "topk": [{"shape": [5, 7], "k": 3}, {"shape": [5, 7], "k": 7, "largest": False}, {"shape": [33], "k": 1}],
    "embedding": [{"rows": 7, "dim": 5, "indices": 11}, {"rows": 2, "dim": 5, "indices": 129}],
    "conv2d": [
        {"batch": 2, "in_channels": 6, "image": [9, 7], "out_channels": 4, "kernel": [3, 2], "stride": 2,
         "padding": 1, "dilation": 2, "groups": 2},
        {"batch": 1, "in_channels": 5, "image": [7, 9], "out_channels": 5, "groups": 5},
        {"batch": 3, "in_channels": 3, "image": [5, 5], "out_channels": 2, "kernel": [1, 1], "padding": 0},
    ],
    "scaled_dot_product_attention": [
        {"batch": 2, "heads": 6, "q_len": 9, "kv_len": 13, "head_dim": 8, "kv_heads": 2},
        {"batch": 1, "heads": 2, "q_len": 17, "kv_len": 17, "head_dim": 16, "causal": True},
        {"batch": 2, "heads": 4, "q_len": 5, "kv_len": 1, "head_dim": 8, "kv_heads": 2},
    ],
}  # fmt: skip
