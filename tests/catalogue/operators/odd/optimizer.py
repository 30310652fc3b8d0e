"""Odd cases of optimizer, optimizer_lamb and optimizer_multi."""

from __future__ import annotations

from typing import Any

_ALL: list[dict[str, Any]] = [
    {"shape": [5, 7], "lr": 0.5, "wd": 0.1},
    {"shape": [33], "lr": 0.2, "wd": 0.5, "rescale_grad": 0.4, "clip_gradient": 0.2},
    {"shape": [3, 1, 5], "lr": 0.1, "wd": 0.0},
]
_CLIPPED = ("sgd", "mp_sgd", "sgd_mom", "mp_sgd_mom", "nag_mom", "mp_nag_mom", "adam", "mp_adam", "adamw", "mp_adamw",
            "ftrl", "ftml", "rmsprop", "rmspropalex", "signum", "adagrad", "adadelta")  # fmt: skip

ODD: dict[str, list[dict[str, Any]]] = {
    **{f"{name}_update": _ALL for name in _CLIPPED},
    "signsgd_update": [{"shape": [5, 7], "lr": 0.5, "wd": 0.1}],
}

# torch leaves the momentum out where it is zero.
ODD |= {f"{name}_update": [*_ALL, {"shape": [9], "lr": 0.5, "momentum": 0.0}] for name in ("sgd_mom", "mp_sgd_mom")}

_PHASE1: list[dict[str, Any]] = [
    {"shape": [5, 7], "wd": 0.5, "t": 1},
    {"shape": [33], "rescale_grad": 0.4, "clip_gradient": 0.2, "bias_correction": False, "beta1": 0.5},
]
_PHASE2: list[dict[str, Any]] = [
    {"shape": [5, 7], "lr": 0.5},
    {"shape": [33], "lr": 0.3, "lower_bound": 1.9},
    {"shape": [3, 1, 5], "lr": 0.3, "lower_bound": 0.1, "upper_bound": 0.6},
]
ODD |= {
    "lamb_update_phase1": _PHASE1,
    "mp_lamb_update_phase1": _PHASE1,
    "lamb_update_phase2": _PHASE2,
    "mp_lamb_update_phase2": _PHASE2,
    "lamb_update": [{**first, **second} for first, second in zip(_PHASE1, _PHASE2, strict=False)],
    "mp_lamb_update": [{**first, **second} for first, second in zip(_PHASE1, _PHASE2, strict=False)],
}

_MULTI: list[dict[str, Any]] = [
    {"count": 3, "shape": [5, 7], "lr": 0.5, "wd": 0.1},
    {"count": 2, "shape": [33], "lr": 0.2, "wd": 0.5, "rescale_grad": 0.4, "clip_gradient": 0.2},
    {"count": 1, "shape": [3, 1, 5], "lr": 0.1, "wd": 0.0},
]
ODD |= {
    **{f"multi_{name}_update": _MULTI for name in ("sgd", "mp_sgd", "sgd_mom", "mp_sgd_mom", "adamw", "mp_adamw")},
    "multi_adam_update": [_MULTI[0], _MULTI[2]],
    "multi_lamb_update": [_MULTI[0], _MULTI[1] | {"bias_correction": False, "lower_bound": 1.0}],
    "multi_mp_lamb_update": [_MULTI[0], _MULTI[1] | {"t": 1, "upper_bound": 1.0}],
    "multi_lars": [{"count": 7, "rescale_grad": 0.5, "eps": 0.1}, {"count": 1}],
}
