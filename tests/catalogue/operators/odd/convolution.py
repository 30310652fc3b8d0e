"""Odd cases of convolutions."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "conv1d": [
        {"batch": 2, "in_channels": 6, "image": [11], "out_channels": 4, "kernel": [4], "stride": 2, "padding": 2,
         "dilation": 2, "groups": 2},
        {"batch": 3, "in_channels": 3, "image": [5], "out_channels": 2, "kernel": [5], "padding": 0},
    ],
    "conv2d": [
        {"batch": 2, "in_channels": 6, "image": [9, 7], "out_channels": 4, "kernel": [3, 2], "stride": 2,
         "padding": 1, "dilation": 2, "groups": 2},
        {"batch": 1, "in_channels": 5, "image": [7, 9], "out_channels": 5, "groups": 5},
        {"batch": 3, "in_channels": 3, "image": [5, 5], "out_channels": 2, "kernel": [1, 1], "padding": 0},
    ],
    "conv3d": [
        {"batch": 2, "in_channels": 4, "image": [5, 6, 7], "out_channels": 2, "kernel": [3, 2, 2], "stride": 2,
         "dilation": 2, "groups": 2},
        {"batch": 1, "in_channels": 3, "image": [2, 5, 3], "out_channels": 5, "kernel": [1, 2, 3], "padding": 0},
    ],
    "grouped_conv2d": [
        {"batch": 2, "in_channels": 6, "image": [7, 5], "out_channels": 9, "groups": 3, "kernel": [2, 3]},
    ],
    "depthwise_conv2d": [
        {"batch": 2, "channels": 5, "image": [7, 9], "multiplier": 3, "kernel": [3, 2], "stride": 2, "dilation": 2},
        {"batch": 1, "channels": 3, "image": [5, 5], "kernel": [5, 5], "padding": 0},
    ],
    "pointwise_conv2d": [{"batch": 3, "in_channels": 5, "image": [7, 3], "out_channels": 2}],
}  # fmt: skip
