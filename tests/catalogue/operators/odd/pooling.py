"""Odd cases of pools."""

from __future__ import annotations

from typing import Any

_1D: dict[str, Any] = {"batch": 2, "channels": 3, "image": [11]}
_2D: dict[str, Any] = {"batch": 2, "channels": 3, "image": [7, 10]}
_3D: dict[str, Any] = {"batch": 1, "channels": 2, "image": [5, 4, 7]}

ODD: dict[str, list[dict[str, Any]]] = {
    "max_pool1d": [{**_1D, "kernel": [3], "stride": 1, "padding": 1, "dilation": 2}, {**_1D, "kernel": [11]}],
    "max_pool2d": [
        {**_2D, "kernel": [3, 2], "stride": 3, "padding": 1, "dilation": 2},
        {**_2D, "kernel": [3, 3], "stride": 1},
        {**_2D, "kernel": [1, 1], "stride": 2},
    ],
    "max_pool3d": [{**_3D, "kernel": [2, 3, 2], "padding": 1}, {**_3D, "kernel": [1, 4, 3], "stride": 1}],
    "avg_pool1d": [
        {**_1D, "kernel": [3], "stride": 1, "padding": 1},
        {**_1D, "kernel": [4], "padding": 2, "count_include_pad": False},
    ],
    "avg_pool2d": [
        {**_2D, "kernel": [3, 2], "stride": 1, "padding": 1},
        {**_2D, "kernel": [2, 5], "padding": 1, "count_include_pad": False},
    ],
    "avg_pool3d": [
        {**_3D, "kernel": [2, 3, 2], "padding": 1},
        {**_3D, "kernel": [3, 2, 3], "stride": 1, "padding": 1, "count_include_pad": False},
    ],
    "sum_pool1d": [{**_1D, "kernel": [3], "stride": 1, "padding": 1}],
    "sum_pool2d": [{**_2D, "kernel": [3, 2], "stride": 1, "padding": 1}],
    "sum_pool3d": [{**_3D, "kernel": [2, 3, 2], "padding": 1}],
    "lp_pool1d": [{**_1D, "kernel": [3], "stride": 1, "norm_type": 3.0}, {**_1D, "kernel": [4], "norm_type": 1.0}],
    "lp_pool2d": [{**_2D, "kernel": [3, 2], "stride": 1, "norm_type": 1.5}],
    "lp_pool3d": [{**_3D, "kernel": [2, 3, 2], "norm_type": 4.0}],
    # Few elements a channel: the largest of many are all close to one.
    "global_max_pool1d": [{**_1D, "image": [3]}, _1D],
    "global_max_pool2d": [{**_2D, "image": [1, 3]}, _2D],
    "global_max_pool3d": [{**_3D, "image": [1, 3, 1]}, _3D],
    "global_avg_pool1d": [_1D],
    "global_avg_pool2d": [_2D],
    "global_avg_pool3d": [_3D],
    "global_sum_pool1d": [_1D],
    "global_sum_pool2d": [_2D],
    "global_sum_pool3d": [_3D],
    "adaptive_max_pool1d": [{**_1D, "out": [4]}, {**_1D, "out": [13]}],
    "adaptive_max_pool2d": [{**_2D, "out": [3, 4]}, {**_2D, "out": [8, 1]}],
    "adaptive_max_pool3d": [{**_3D, "out": [2, 3, 4]}],
    "adaptive_avg_pool1d": [{**_1D, "out": [4]}, {**_1D, "out": [13]}],
    "adaptive_avg_pool2d": [{**_2D, "out": [3, 4]}, {**_2D, "out": [8, 1]}],
    "adaptive_avg_pool3d": [{**_3D, "out": [2, 3, 4]}],
    "max_unpool1d": [{**_1D, "kernel": [3]}],
    "max_unpool2d": [{**_2D, "kernel": [3, 2]}],
    "max_unpool3d": [{**_3D, "kernel": [2, 3, 2]}],
}
