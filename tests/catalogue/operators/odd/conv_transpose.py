"""Odd cases of transposed convolutions."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "conv_transpose1d": [
        {"batch": 2, "in_channels": 6, "image": [5], "out_channels": 4, "kernel": [4], "stride": 3, "padding": 2,
         "output_padding": 1, "dilation": 2, "groups": 2},
        {"batch": 1, "in_channels": 3, "image": [7], "out_channels": 2, "kernel": [2], "stride": 1, "padding": 0},
    ],
    "conv_transpose2d": [
        {"batch": 2, "in_channels": 6, "image": [5, 4], "out_channels": 4, "kernel": [3, 2], "padding": 1,
         "output_padding": 1, "dilation": 2, "groups": 2},
        {"batch": 1, "in_channels": 5, "image": [3, 7], "out_channels": 5, "groups": 5, "stride": 1},
        {"batch": 1, "in_channels": 2, "image": [3, 2], "out_channels": 3, "kernel": [1, 2], "padding": 0},
    ],
    "conv_transpose3d": [
        {"batch": 2, "in_channels": 4, "image": [3, 2, 4], "out_channels": 2, "kernel": [3, 2, 2],
         "output_padding": 1, "groups": 2},
    ],
}  # fmt: skip
