"""MXNet's own update steps of optimizers, which write over weights and states.

The second phase of LAMB on 16-bit weights is left out: MXNet 1.9.1 does not change the float32 copy of the weights.
"""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.mxnet.implementations._rows import write_call
from opmark.plugin import Implementation, Params

RENAMED = {"eps": "epsilon"}
_OURS = ("shape", "count", "dtype")


def _keywords(p: Params, *without: str) -> dict[str, Any]:
    if p["dtype"] == "float64":
        raise Unsupported("MXNet keeps the rates of a step in float32, which is too imprecise for float64")
    return {RENAMED.get(name, name): v for name, v in p.items() if name not in (*_OURS, *without)}


def _step(name: str, *, clip: str = "clip_gradient") -> Implementation:
    """Make an implementation of a function of (weight, gradient, states) that writes over all but the gradient."""

    def build(mx: Any, p: Params, weight: Any, grad: Any, **states: Any) -> Any:
        function, how = getattr(mx.nd, name), _keywords(p)
        if "clip_gradient" in how:
            how[clip] = how.pop("clip_gradient")

        def call() -> Any:
            function(weight, grad, *states.values(), out=weight, **how)
            return weight, *states.values()

        return call if states else lambda: function(weight, grad, out=weight, **how)

    return write_call(build, f"mxnet.nd.{name}")


def _mixed(name: str) -> Implementation:
    """Make an implementation of a step on a float32 copy of 16-bit weights, which are written but not read."""

    def build(mx: Any, p: Params, grad: Any, **states: Any) -> Any:
        _require_float16(p)
        function, how, weight = getattr(mx.nd, name), _keywords(p), mx.nd.zeros(grad.shape, dtype=grad.dtype)

        def call() -> Any:
            function(weight, grad, *states.values(), out=weight, **how)
            return weight, *states.values()

        return call

    return write_call(build, f"mxnet.nd.{name}")


def _require_float16(p: Params) -> None:
    if p["dtype"] != "float16":
        raise Unsupported("MXNet's 16-bit weights are always float16")


def _adamw(mixed: bool) -> Implementation:
    """MXNet's `eta` is the catalogue's `lr`; MXNet's `lr` does not scale the decay."""

    def build(mx: Any, p: Params, grad: Any, **others: Any) -> Any:
        if mixed:
            _require_float16(p)
        weight = mx.nd.zeros(grad.shape, dtype=grad.dtype) if mixed else others.pop("weight")
        function = mx.nd.contrib.mp_adamw_update if mixed else mx.nd.contrib.adamw_update
        rescale = mx.nd.array([p["rescale_grad"]], dtype="float32" if mixed else p["dtype"])
        how = _keywords(p, "lr", "rescale_grad") | {"lr": 1.0, "eta": p["lr"]}

        def call() -> Any:
            function(weight, grad, *others.values(), rescale, out=weight, **how)
            return weight, *others.values()

        return call

    return write_call(build, "mxnet.nd.contrib.mp_adamw_update" if mixed else "mxnet.nd.contrib.adamw_update")


def _phase1(mixed: bool) -> Implementation:
    def build(mx: Any, p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> Any:
        how = _keywords(p)
        if not mixed:
            return lambda: (mx.nd.lamb_update_phase1(weight, grad, mean, var, **how), mean, var)
        _require_float16(p)
        short = weight.astype("float16")
        return lambda: (mx.nd.mp_lamb_update_phase1(short, grad, mean, var, weight, **how), mean, var)

    return write_call(build, "mxnet.nd.mp_lamb_update_phase1" if mixed else "mxnet.nd.lamb_update_phase1")


def _phase2(mx: Any, p: Params, weight: Any, g: Any, r1: Any, r2: Any) -> Any:
    how = _keywords(p)
    return lambda: mx.nd.lamb_update_phase2(weight, g, r1, r2, out=weight, **how)


BOUNDS = ("lr", "lower_bound", "upper_bound")


def _lamb(mx: Any, p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> Any:
    """Compute a step as `mxnet.optimizer.LAMB` does."""
    first, second = _keywords(p, *BOUNDS), {name: p[name] for name in BOUNDS}

    def call() -> Any:
        g = mx.nd.lamb_update_phase1(weight, grad, mean, var, **first)
        mx.nd.lamb_update_phase2(weight, g, weight.norm(), g.norm(), out=weight, **second)
        return weight, mean, var

    return call


def _many(name: str, *, mixed: bool = False) -> Implementation:
    """Make one call for many tensors, which are slices of the inputs over the same memory."""

    def build(mx: Any, p: Params, grad: Any, **others: Any) -> Any:
        if mixed:
            _require_float16(p)
        weight = mx.nd.zeros(grad.shape, dtype=grad.dtype) if mixed else others.pop("weight")
        parts = [[tensor[i] for tensor in (weight, grad, *others.values())] for i in range(p["count"])]
        flat, outs = [tensor for part in parts for tensor in part], [part[0] for part in parts]
        how = _keywords(p, "lr", "wd") | {name: (p[name[:-1]],) * p["count"] for name in ("lrs", "wds")}
        function = getattr(mx.nd, name)

        def call() -> Any:
            function(*flat, out=outs, num_weights=p["count"], **how)
            return (weight, *others.values()) if others else weight

        return call

    return write_call(build, f"mxnet.nd.{name}")


def _lars(mx: Any, p: Params, **tensors: Any) -> Any:
    how = {name: p[name] for name in ("eta", "eps", "rescale_grad")}
    return lambda: mx.nd.multi_lars(*tensors.values(), **how)


IMPLEMENTATIONS = {
    **{name: _step(name) for name in ("sgd_update", "sgd_mom_update", "nag_mom_update", "adam_update", "ftrl_update",
                                      "rmsprop_update", "rmspropalex_update", "signsgd_update", "signum_update")},
    "ftml_update": _step("ftml_update", clip="clip_grad"),
    **{name: _mixed(name) for name in ("mp_sgd_update", "mp_sgd_mom_update", "mp_nag_mom_update")},
    "adamw_update": _adamw(mixed=False),
    "mp_adamw_update": _adamw(mixed=True),
    "lamb_update_phase1": _phase1(mixed=False),
    "mp_lamb_update_phase1": _phase1(mixed=True),
    "lamb_update_phase2": write_call(_phase2, "mxnet.nd.lamb_update_phase2"),
    "lamb_update": write_call(_lamb),
    **{name: _many(name) for name in ("multi_sgd_update", "multi_sgd_mom_update")},
    **{name: _many(name, mixed=True) for name in ("multi_mp_sgd_update", "multi_mp_sgd_mom_update")},
    "multi_lars": write_call(_lars, "mxnet.nd.multi_lars"),
}  # fmt: skip
