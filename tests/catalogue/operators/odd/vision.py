"""Odd cases of sampling, regions and correlation."""

from __future__ import annotations

from typing import Any

_SAMPLE: list[dict[str, Any]] = [
    {"batch": 2, "channels": 3, "image": [7, 9], "out": [5, 6]},
    {"batch": 3, "channels": 2, "image": [6, 5], "out": [8, 7], "align_corners": True, "padding_mode": "border"},
]

ODD: dict[str, list[dict[str, Any]]] = {
    "grid_sample": _SAMPLE,
    "spatial_transformer": _SAMPLE,
    "affine_grid": [{"batch": 3, "out": [5, 7]}, {"batch": 2, "out": [4, 2], "align_corners": True}],
    "roi_pooling": [
        {"batch": 2, "channels": 3, "image": [9, 11], "regions": 5, "region": [7, 5], "out": [3, 2]},
        {"batch": 1, "channels": 2, "image": [5, 6], "regions": 3, "region": [2, 6], "out": [3, 4]},
    ],
    "roi_align": [
        {"batch": 2, "channels": 3, "image": [9, 11], "regions": 5, "region": [7, 5], "out": [3, 2], "samples": 3},
        {"batch": 1, "channels": 2, "image": [5, 6], "regions": 3, "region": [2, 6], "out": [3, 4], "samples": 1},
    ],
    "correlation": [
        {"batch": 2, "channels": 3, "image": [7, 9], "kernel": 3, "max_displacement": 3, "stride": 2,
         "displacement_stride": 2, "padding": 3},
        {"batch": 1, "channels": 2, "image": [5, 6], "max_displacement": 1, "stride": 3},
        {"batch": 1, "channels": 2, "image": [3, 3], "max_displacement": 0},
    ],
    "warp_grid": [{"batch": 3, "image": [5, 7]}, {"batch": 1, "image": [2, 3]}],
}  # fmt: skip
