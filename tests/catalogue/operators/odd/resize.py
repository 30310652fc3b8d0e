"""Odd cases of resizing."""

from __future__ import annotations

from typing import Any

_1D: dict[str, Any] = {"batch": 2, "channels": 3, "image": [7]}
_2D: dict[str, Any] = {"batch": 2, "channels": 3, "image": [5, 7]}
_3D: dict[str, Any] = {"batch": 1, "channels": 2, "image": [3, 5, 4]}

ODD: dict[str, list[dict[str, Any]]] = {
    "upsample_nearest1d": [{**_1D, "out": [21]}, {**_1D, "out": [7]}],
    "upsample_nearest2d": [{**_2D, "out": [15, 14]}],
    "upsample_nearest3d": [{**_3D, "out": [3, 10, 12]}],
    "upsample_linear1d": [{**_1D, "out": [10]}, {**_1D, "out": [19], "align_corners": True}],
    "upsample_bilinear2d": [
        {**_2D, "out": [9, 11]},
        {**_2D, "out": [12, 7], "align_corners": True},
        {"batch": 1, "channels": 2, "image": [1, 3], "out": [4, 3], "align_corners": True},
    ],
    "upsample_trilinear3d": [{**_3D, "out": [4, 7, 9]}, {**_3D, "out": [5, 5, 11], "align_corners": True}],
    "upsample_bicubic2d": [{**_2D, "out": [9, 11]}, {**_2D, "out": [12, 7], "align_corners": True}],
}
