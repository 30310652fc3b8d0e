"""Make operators of optimizers' update steps, which change weights and states in place.

Operators with MXNet's names use MXNet's formulas: the gradient is rescaled and clipped, and weight decay is added. A
launch repeats the same step with the same gradient: data and defaults keep weights finite and states away from zero for
a million steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import torch as by_torch
from opmark.errors import Unsupported
from opmark.plugin import Implementation, Launch, Operator, Param, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, real, shape
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

HALVES = ("float16", "bfloat16")
PRESETS = {
    "small": {"shape": [128, 128]},
    "typical": {"shape": [1024, 1024]},
    "large": {"shape": [8192, 4096]},
}
WD = real("wd", "weight decay", 1e-4, kind="amount")
GRADIENT = (
    real("rescale_grad", "factor of the gradient", 1.0),
    real("clip_gradient", "the gradient is clipped to [-this, this]; negative: no clipping", -1.0),
)
LR_POSITIVE = ParamRule("lr", "be above 0 (got {lr})", lambda p: p["lr"] > 0)
# Bounds that every element type can hold.
SIGNED, POSITIVE = (-1.0, 1.0), (0.125, 1.0)


class RoundedSteps(Tolerance):
    """For updates that frameworks do in several steps: in 16 bits each of them rounds its result, and float32 has
    digits to spare."""

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        relative, typical = super().bounds(dtype, params)
        steps = 4.0 if dtype in HALVES else 1.0
        return steps * relative, steps * typical


WAYS = ("plain", "fused")  # the plain one first: speedups are relative to it

Step = Callable[..., Callable[[], Any]]
"""step(params, weight, grad, **states) returns a call that changes weight and states in place."""


def lr(default: float) -> Param:
    return real("lr", "learning rate", default, kind="amount")


def update(
    name: str,
    summary: str,
    *,
    reference: Callable[..., Any],
    step: Step,
    params: Sequence[Param],
    flops: int,
    states: Mapping[str, tuple[float, float]] | None = None,
    master: bool = False,
    path: str = "",
    ways: Sequence[str] = (),
    aliases: Sequence[str] = (),
    dtypes: Sequence[str] = FLOATS,
    rules: Sequence[ParamRule] = (),
    tolerance: Tolerance | None = None,
    observe: Callable[..., Any] | None = None,
) -> Operator:
    """Make an operator.

    `reference(p, weight, grad, **states)` returns the new weight and the new states. With `master`, weight and gradient
    are of a 16-bit type; the step is done on a float32 copy of the weight, which is then rounded. `ways` names several
    ways in which torch does the step; each is an implementation, and the step gets `way` too.
    """
    domains = dict(states or {})
    changed = (*domains, "weight32") if master else ("weight", *domains)
    computed = with_master(reference) if master else reference
    steps: dict[str, Step] = {way: partial(step, way=way) for way in ways} or {"": step}
    return Operator(
        name=name,
        summary=summary,
        category="optimizer",
        params=(shape("shape", "shape of the weight"), *params,
                dtype(*HALVES, default="float16") if master else dtype(*dtypes)),
        inputs=lambda p: update_inputs(p, tuple(p["shape"]), domains, master),
        cost=lambda p: update_cost(p, prod(p["shape"]), len(domains), flops, master),
        reference=computed,
        presets=PRESETS,
        implementations=(
            numpy_update(computed, changed, master),
            *(by_torch(torch_update(run, changed, master), path, way) for way, run in steps.items()),
        ),
        tolerance=tolerance or Tolerance(),
        further_dtypes=lambda _: ("float32",) if master else (),
        mutates=changed,
        rules=tuple(rules),
        aliases=tuple(aliases),
        observe=observe,
    )  # fmt: skip


def update_inputs(
    p: Params, size: tuple[int, ...], states: Mapping[str, tuple[float, float]], master: bool
) -> dict[str, TensorSpec]:
    wide = "float32" if master else p["dtype"]
    held = {name: TensorSpec(size, wide, *domain) for name, domain in states.items()}
    grad = TensorSpec(size, p["dtype"])
    if master:  # the rounded weight is only written
        return {"grad": grad, **held, "weight32": TensorSpec(size, wide)}
    return {"weight": TensorSpec(size, wide), "grad": grad, **held}


def update_cost(p: Params, n: int, states: int, flops: int, master: bool) -> Cost:
    """Return the cost: weight and states are read and written, the gradient is read."""
    narrow, wide = sizeof(p["dtype"]), 4 if master else sizeof(p["dtype"])
    held = n * (states + 1) * wide
    return Cost(flops * n, held + n * narrow, held + (n * narrow if master else 0))


def with_master(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Return the reference of a step with a float32 copy: it returns the weight, the states and the copy."""

    def computed(p: Params, grad: Any, weight32: Any, **states: Any) -> Any:
        weight, *held = as_tuple(reference(p, weight=weight32, grad=grad, **states))
        return (weight, *held, weight)

    return computed


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def numpy_update(reference: Callable[..., Any], changed: Sequence[str], master: bool) -> Implementation:
    """Make a NumPy implementation that writes the reference's results back in place; float16 is computed in float32."""

    def build(p: Params, **arrays: Any) -> Launch:
        rounded = (np.empty(arrays["weight32"].shape, p["dtype"]),) if master else ()
        targets = (*rounded, *(arrays[name] for name in changed))

        def launch() -> Any:
            wide = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in arrays.items()}
            for target, value in zip(targets, as_tuple(reference(p, **wide)), strict=True):
                target[...] = value
            return targets

        return launch

    return Implementation("numpy", build)


def torch_update(step: Step, changed: Sequence[str], master: bool) -> Callable[..., Launch]:
    def build(p: Params, **tensors: Any) -> Launch:
        outputs = tuple(tensors[name] for name in changed)
        if master:
            return _with_master(p, step, outputs, **tensors)
        run = step(p, **tensors)

        def launch() -> Any:
            run()
            return outputs

        return launch

    return build


def _with_master(p: Params, step: Step, held: tuple[Any, ...], grad: Any, weight32: Any, **states: Any) -> Launch:
    import torch

    weight, wide = torch.empty_like(grad), torch.empty_like(weight32)
    run = step(p, weight=weight32, grad=wide, **states)

    def launch() -> Any:
        wide.copy_(grad)
        run()
        weight.copy_(weight32)
        return (weight, *held)

    return launch


def clip(p: Params, g: Any) -> Any:
    return np.clip(g, -p["clip_gradient"], p["clip_gradient"]) if p["clip_gradient"] >= 0 else g


def gradient(p: Params, grad: Any) -> Any:
    """Return the rescaled and clipped gradient."""
    return clip(p, p["rescale_grad"] * grad)


def decayed_gradient(p: Params, grad: Any, weight: Any) -> Any:
    """Return the rescaled gradient plus weight decay, clipped after that."""
    return clip(p, p["rescale_grad"] * grad + p["wd"] * weight)


def torch_gradient(p: Params, grad: Any) -> Callable[[], Any]:
    """Return a function for torch's rescaled and clipped gradient; without any operation if there is nothing to do."""
    factor, limit = p["rescale_grad"], p["clip_gradient"]
    if limit >= 0:
        return lambda: (grad * factor).clamp_(-limit, limit)
    return (lambda: grad) if factor == 1 else (lambda: grad * factor)


def torch_decayed_gradient(p: Params, grad: Any, weight: Any) -> Callable[[], Any]:
    factor, wd, limit = p["rescale_grad"], p["wd"], p["clip_gradient"]
    rescaled = torch_gradient({**p, "clip_gradient": -1.0}, grad)
    if limit < 0 and wd == 0:
        return rescaled
    if limit < 0:
        return lambda: rescaled().add(weight, alpha=wd)
    return lambda: (grad * factor).add_(weight, alpha=wd).clamp_(-limit, limit)


def keywords_of(way: str, optimizer: str, tensor: Any) -> dict[str, bool]:
    """Return the keywords of torch's functional optimizers; Unsupported if torch lacks this way for such a tensor."""
    if way == "fused":
        require_fused(optimizer, tensor)
    return {"foreach": way == "foreach", "fused": way == "fused"}


def require_fused(optimizer: str, tensor: Any) -> None:
    """Try a fused step on a tensor that is long enough for vector instructions; Unsupported if it does not work."""
    import torch

    about = f"fused {optimizer} for {tensor.dtype} on {tensor.device.type}"
    probe = torch.ones(64, dtype=tensor.dtype, device=tensor.device, requires_grad=True)
    probe.grad = torch.ones_like(probe)
    try:
        getattr(torch.optim, optimizer)([probe], lr=0.1, fused=True).step()
    except RuntimeError as error:
        raise Unsupported(f"torch has no {about}: {str(error).splitlines()[0]}") from None
    if bool((probe == 1).any()):  # happens with 16-bit tensors on a CPU, up to torch 2.13
        raise Unsupported(f"torch's {about} does not change weights (pytorch issue 191763)")


def step_counter(way: str, tensor: Any, steps: float) -> Any:
    """Return a step counter where torch keeps it: beside the weight if fused, else on the host."""
    import torch

    return torch.tensor(steps, device=tensor.device if way == "fused" else "cpu")
