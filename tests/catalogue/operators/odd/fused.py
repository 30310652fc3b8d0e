"""Odd cases of fused and fused_conv. The compiled implementations take seconds each: a single case of most."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "linear_relu": [{"M": 5, "N": 7, "K": 3}],
    "linear_gelu": [{"M": 5, "N": 7, "K": 3, "approximate": "tanh"}],
    "linear_add": [{"M": 5, "N": 7, "K": 3}],
    "add_layer_norm": [{"shape": [3, 4, 17], "eps": 0.1}],
    "matmul_softmax_matmul": [{"batch": 2, "heads": 3, "length": 5, "head_dim": 7}],
    "softmax_dropout": [{"shape": [33, 65], "p": 0.5}],
    "bias_dropout_add": [{"shape": [33, 3, 65], "p": 0.5}],
}

_CONV: dict[str, Any] = {
    "batch": 2, "in_channels": 3, "image": [9, 7], "out_channels": 5, "kernel": [3, 2], "stride": 2, "padding": 1,
}  # fmt: skip
ODD |= {
    "conv_relu": [_CONV],
    "conv_bn": [{**_CONV, "eps": 0.1}, {**_CONV, "training": True}],
    "conv_bn_relu": [{**_CONV, "eps": 0.1}, {**_CONV, "training": True, "momentum": 0.3}],
}

# An element that is zero looks like one that was dropped.
IMMUNE = {"softmax_dropout": {"one element zero"}, "bias_dropout_add": {"one element zero"}}
