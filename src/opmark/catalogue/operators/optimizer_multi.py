"""Optimizers' update steps of many tensors in one call: in a loop, by torch's foreach functions, or fused.

The tensors have one shape and are consecutive in memory, as slices of the operator's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula
from opmark.catalogue.operators._builders import torch as by_torch
from opmark.catalogue.operators._optimizer import (
    GRADIENT,
    HALVES,
    SIGNED,
    WD,
    keywords_of,
    lr,
    numpy_update,
    step_counter,
    torch_gradient,
    update_cost,
    update_inputs,
    with_master,
)
from opmark.catalogue.operators.optimizer import (
    BETAS,
    EPS,
    MOMENTS,
    MOMENTUM,
    OLD,
    adam_formula,
    adam_options,
    adamw_formula,
    sgd_formula,
    sgd_mom_formula,
    sgd_options,
)
from opmark.catalogue.operators.optimizer_lamb import (
    BOUNDS,
    ORDERED,
    PHASE1,
    YOUNG,
    lamb_formula,
    torch_lamb,
    torch_ratio,
    unbias,
)
from opmark.plugin import Launch, Operator, Param, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, real, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

PRESETS = {
    "small": {"count": 8, "shape": [64, 64]},
    "typical": {"count": 64, "shape": [128, 128]},
    "large": {"count": 160, "shape": [512, 512]},
}
WAYS = ("loop", "foreach", "fused")  # the plain one first: speedups are relative to it

Slices = Sequence[Any]
Step = Callable[..., Callable[[], Any]]
"""step(params, way, weights, grads, *states) returns a call that changes all of them; each is a list of slices."""


def _multi(
    name: str,
    summary: str,
    *,
    reference: Callable[..., Any],
    step: Step,
    params: Sequence[Param],
    flops: int,
    states: Mapping[str, tuple[float, float]] | None = None,
    master: bool = False,
    ways: Sequence[str] = WAYS,
    aliases: Sequence[str] = (),
    rules: Sequence[ParamRule] = (),
    tolerance: Tolerance | None = None,
) -> Operator:
    domains = dict(states or {})
    changed = (*domains, "weight32") if master else ("weight", *domains)
    computed = with_master(reference) if master else reference
    return Operator(
        name=name,
        summary=summary,
        category="optimizer",
        params=(size("count", "number of tensors"), shape("shape", "shape of each"), *params,
                dtype(*HALVES, default="float16") if master else dtype(*FLOATS)),
        inputs=lambda p: update_inputs(p, (p["count"], *p["shape"]), domains, master),
        cost=lambda p: update_cost(p, p["count"] * prod(p["shape"]), len(domains), flops, master),
        reference=computed,
        presets=PRESETS,
        implementations=(
            numpy_update(computed, changed, master),
            *(by_torch(partial(_build, step, way, changed, master), name=way) for way in ways),
        ),
        tolerance=tolerance or Tolerance(),
        further_dtypes=lambda _: ("float32",) if master else (),
        mutates=changed,
        rules=tuple(rules),
        aliases=tuple(aliases),
    )  # fmt: skip


def _build(step: Step, way: str, changed: Sequence[str], master: bool, p: Params, **tensors: Any) -> Launch:
    outputs = tuple(tensors[name] for name in changed)
    states = [list(tensors[name].unbind()) for name in changed if not name.startswith("weight")]
    grads, weights = list(tensors["grad"].unbind()), list(tensors["weight32" if master else "weight"].unbind())
    if master:
        return _with_master(p, step, way, outputs, weights, grads, states)
    run = step(p, way, weights, grads, *states)

    def launch() -> Any:
        run()
        return outputs

    return launch


def _with_master(
    p: Params, step: Step, way: str, outputs: tuple[Any, ...], weights: Slices, grads: Slices, states: Sequence[Slices]
) -> Launch:
    import torch

    rounded = torch.empty_like(outputs[-1], dtype=grads[0].dtype)
    narrow, wide = list(rounded.unbind()), list(torch.empty_like(outputs[-1]).unbind())
    run, copy = step(p, way, weights, wide, *states), _copy_all if way == "loop" else torch._foreach_copy_

    def launch() -> Any:
        copy(wide, grads)
        run()
        copy(narrow, weights)
        return (rounded, *outputs)

    return launch


def _copy_all(targets: Slices, sources: Slices) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def _gradients(p: Params, way: str, grads: Slices) -> Callable[[], Slices]:
    """Return a function that rescales and clips all gradients."""
    import torch

    factor, limit = p["rescale_grad"], p["clip_gradient"]
    if way == "loop":
        each = [torch_gradient(p, grad) for grad in grads]
        return lambda: [rescaled() for rescaled in each]
    if limit < 0:
        return (lambda: grads) if factor == 1 else (lambda: torch._foreach_mul(grads, factor))

    def clipped() -> Slices:
        scaled: Slices = torch._foreach_mul(grads, factor)
        torch._foreach_clamp_max_(scaled, limit)
        torch._foreach_clamp_min_(scaled, -limit)
        return scaled

    return clipped


def _sgd(p: Params, way: str, weights: Slices, grads: Slices, *states: Slices) -> Callable[[], Any]:
    from torch.optim.sgd import sgd

    mom = states[0] if states else [None] * len(weights)
    g, options = _gradients(p, way, grads), sgd_options(p) | keywords_of(way, "SGD", weights[0])
    return lambda: sgd(weights, g(), mom, **options)


def _steps(way: str, weights: Slices) -> list[Any]:
    return [step_counter(way, weight, OLD) for weight in weights]


def _adam(p: Params, way: str, weights: Slices, grads: Slices, mean: Slices, var: Slices) -> Callable[[], Any]:
    from torch.optim.adam import adam

    options, steps = adam_options(p) | keywords_of(way, "Adam", weights[0]), _steps(way, weights)
    return lambda: adam(weights, grads, mean, var, [], steps, **options)


def _adamw(p: Params, way: str, weights: Slices, grads: Slices, mean: Slices, var: Slices) -> Callable[[], Any]:
    from torch.optim.adamw import adamw

    options, steps = adam_options(p) | keywords_of(way, "AdamW", weights[0]), _steps(way, weights)
    g = _gradients(p, way, grads)
    return lambda: adamw(weights, g(), mean, var, [], steps, **options)


def _unclipped_adam(p: Params, **arrays: Any) -> Any:
    return adam_formula({**p, "rescale_grad": 1.0, "clip_gradient": -1.0}, **arrays)


def _each_lamb(p: Params, **stacks: Any) -> Any:
    each = [lamb_formula(p, **{name: stack[i] for name, stack in stacks.items()}) for i in range(p["count"])]
    return tuple(np.stack(outputs) for outputs in zip(*each, strict=True))


def _lamb(p: Params, way: str, weights: Slices, grads: Slices, mean: Slices, var: Slices) -> Callable[[], Any]:
    if way == "foreach":
        return _foreach_lamb(p, weights, grads, mean, var)
    each = [torch_lamb(p, w, g, m, v) for w, g, m, v in zip(weights, grads, mean, var, strict=True)]

    def step() -> None:
        for one in each:
            one()

    return step


def _foreach_lamb(p: Params, weights: Slices, grads: Slices, mean: Slices, var: Slices) -> Callable[[], Any]:
    import torch

    rescaled, beta1, beta2, (first, second) = _gradients(p, "foreach", grads), p["beta1"], p["beta2"], unbias(p)
    steps = _foreach_step_lengths(p, weights[0].dtype)

    def step() -> None:
        g = rescaled()
        torch._foreach_mul_(mean, beta1)
        torch._foreach_add_(mean, g, alpha=1 - beta1)
        torch._foreach_mul_(var, beta2)
        torch._foreach_addcmul_(var, g, g, 1 - beta2)
        root = torch._foreach_sqrt(var)
        torch._foreach_div_(root, second**0.5)
        torch._foreach_add_(root, p["eps"])
        way = torch._foreach_div(mean, first)
        torch._foreach_div_(way, root)
        torch._foreach_add_(way, weights, alpha=p["wd"])
        torch._foreach_mul_(way, steps(weights, way))
        torch._foreach_add_(weights, way)

    return step


def _foreach_step_lengths(p: Params, kind: Any) -> Callable[[Slices, Slices], Slices]:
    """Return a function for - lr |weight| / |direction| of each tensor; norms have at least 32 bits."""
    import torch

    wide, ratio = torch.float64 if kind == torch.float64 else torch.float32, torch_ratio(p)

    def lengths(weights: Slices, directions: Slices) -> Slices:
        r1 = torch.stack(torch._foreach_norm(weights, dtype=wide))
        r2 = torch.stack(torch._foreach_norm(directions, dtype=wide))
        return list(ratio(r1, r2).to(kind).unbind())

    return lengths


def _lars(p: Params, lrs: Any, weights_sum_sq: Any, grads_sum_sq: Any, wds: Any) -> Any:
    norm, grad = np.sqrt(weights_sum_sq), np.sqrt(grads_sum_sq) * p["rescale_grad"]
    usable = (weights_sum_sq > 0) & (grads_sum_sq > 0)
    divisor = np.where(usable, grad + wds * norm + p["eps"], 1)
    return np.where(usable, lrs * p["eta"] * norm / divisor, lrs)


def _torch_lars(p: Params, lrs: Any, weights_sum_sq: Any, grads_sum_sq: Any, wds: Any) -> Launch:
    import torch

    def launch() -> Any:
        norm = weights_sum_sq.sqrt()
        divisor = grads_sum_sq.sqrt().mul_(p["rescale_grad"]).addcmul_(wds, norm).add_(p["eps"])
        rates = (lrs * norm).mul_(p["eta"]).div_(divisor)
        return torch.where((weights_sum_sq > 0) & (grads_sum_sq > 0), rates, lrs)

    return launch


LARS = Operator(
    name="multi_lars",
    summary="layer-wise learning rates from the norms of weights and gradients",
    category="optimizer",
    params=(
        size("count", "number of layers"),
        real("eta", "LARS coefficient", 0.001),
        real("eps", "added to the divisor", 1e-8, kind="amount"),
        real("rescale_grad", "factor of the gradients", 1.0),
        dtype(*FLOATS),
    ),
    inputs=lambda p: {
        "lrs": TensorSpec((p["count"],), p["dtype"], 0.015625, 1.0),
        "weights_sum_sq": TensorSpec((p["count"],), p["dtype"], 0.0, 100.0),
        "grads_sum_sq": TensorSpec((p["count"],), p["dtype"], 0.125, 100.0),
        "wds": TensorSpec((p["count"],), p["dtype"], 0.0, 0.125),
    },
    # Two roots, three factors, a product and two sums for the divisor, a quotient.
    cost=lambda p: Cost(9 * p["count"], 4 * p["count"] * sizeof(p["dtype"]), p["count"] * sizeof(p["dtype"])),
    reference=_lars,
    presets={"small": {"count": 64}, "typical": {"count": 1024}, "large": {"count": 65536}},
    implementations=(formula(_lars), by_torch(_torch_lars)),
)

_SGD = partial(_multi, reference=sgd_formula, step=_sgd, params=(lr(0.01), WD, *GRADIENT), flops=5)
_SGD_MOM = partial(
    _multi,
    reference=sgd_mom_formula,
    step=_sgd,
    params=(lr(0.01), MOMENTUM, WD, *GRADIENT),
    flops=7,
    states={"mom": SIGNED},
)
_ADAMW = partial(
    _multi,
    reference=adamw_formula,
    step=_adamw,
    flops=14,
    states=MOMENTS,
    params=(lr(1e-3), *BETAS, EPS, real("wd", "weight decay", 0.01, kind="amount"), *GRADIENT),
)
_LAMB = partial(_multi, reference=_each_lamb, step=_lamb, params=(lr(0.01), *PHASE1, *BOUNDS), flops=21,
                states=MOMENTS, ways=("loop", "foreach"), rules=(ORDERED, YOUNG))  # fmt: skip

OPERATORS: tuple[Operator, ...] = (
    _SGD("multi_sgd_update", "sgd_update of many tensors", aliases=("preloaded_multi_sgd_update",)),
    _SGD("multi_mp_sgd_update", "mp_sgd_update of many tensors", master=True,
         aliases=("preloaded_multi_mp_sgd_update",)),
    _SGD_MOM("multi_sgd_mom_update", "sgd_mom_update of many tensors", aliases=("preloaded_multi_sgd_mom_update",)),
    _SGD_MOM("multi_mp_sgd_mom_update", "mp_sgd_mom_update of many tensors", master=True,
             aliases=("preloaded_multi_mp_sgd_mom_update",)),
    _multi("multi_adam_update", "adam_update of many tensors", reference=_unclipped_adam, step=_adam,
           params=(lr(1e-3), *BETAS, EPS, WD), flops=14, states=MOMENTS, aliases=("multi_adam",)),
    _ADAMW("multi_adamw_update", "adamw_update of many tensors", aliases=("multi_adamw",)),
    _ADAMW("multi_mp_adamw_update", "mp_adamw_update of many tensors", master=True),
    _LAMB("multi_lamb_update", "lamb_update of many tensors", aliases=("multi_lamb",)),
    _LAMB("multi_mp_lamb_update", "mp_lamb_update of many tensors", master=True),
    LARS,
)  # fmt: skip
