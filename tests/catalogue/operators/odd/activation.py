"""Odd sizes and unusual options of activations."""

from __future__ import annotations

from typing import Any

_ODD = {"shape": [5, 7]}
_PLAIN = (
    "relu", "relu6", "selu", "silu", "mish", "hard_sigmoid", "hardswish", "sigmoid", "log_sigmoid", "softsign",
    "tanhshrink",
)  # fmt: skip

ODD: dict[str, list[dict[str, Any]]] = {
    **{name: [_ODD, {"shape": [3, 1, 11]}] for name in _PLAIN},
    "leaky_relu": [{**_ODD, "negative_slope": 0.3}, {"shape": [33, 3], "negative_slope": -0.5}],
    "prelu": [{"shape": [4, 3, 5]}, {"shape": [17, 5]}],
    "elu": [{**_ODD, "alpha": 0.3}, {"shape": [33, 3]}],
    "celu": [{**_ODD, "alpha": 2.5}, {"shape": [33, 3], "alpha": 0.3}],
    "gelu": [{**_ODD, "approximate": "tanh"}, {"shape": [33, 3]}],
    "softplus": [{**_ODD, "beta": 3.0}, {"shape": [33, 3], "beta": 30.0}],
    "hardtanh": [{**_ODD, "min_val": -0.3, "max_val": 2.1}, {**_ODD, "min_val": 6.0, "max_val": 7.0}],
    "softshrink": [{**_ODD, "lambd": 0.3}, {"shape": [33, 3], "lambd": 0.0}, {**_ODD, "lambd": 9.0}],
    "hardshrink": [{**_ODD, "lambd": 0.3}, {"shape": [33, 3], "lambd": 0.0}],
    "threshold": [{**_ODD, "threshold": -0.3, "value": 7.0}, {"shape": [33, 3], "threshold": 0.1}],
}
