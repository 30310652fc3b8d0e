"""LAMB (layer-wise adaptive moments), in MXNet's two phases and as a whole."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import torch as by_torch
from opmark.catalogue.operators._optimizer import (
    GRADIENT,
    HALVES,
    POSITIVE,
    PRESETS,
    SIGNED,
    gradient,
    lr,
    numpy_update,
    torch_gradient,
    update,
)
from opmark.plugin import Implementation, Launch, Operator, ParamRule, Params
from opmark.plugin.param import dtype, flag, integer, real, shape
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, sizeof

MOMENTS = {"mean": SIGNED, "var": POSITIVE}
PHASE1 = (
    real("beta1", "decay of the mean", 0.9, kind="amount"),
    real("beta2", "decay of the mean square", 0.999, kind="amount"),
    real("eps", "added to the root of the mean square", 1e-6, kind="amount"),
    integer("t", "number of the step, for the bias correction", 100, kind="size"),
    flag("bias_correction", "correct young means", default=True),
    real("wd", "weight decay", 0.01, kind="amount"),
    *GRADIENT,
)
BOUNDS = (
    real("lower_bound", "lower limit of the weight's norm; negative: no limit", -1.0),
    real("upper_bound", "upper limit of the weight's norm; negative: no limit", -1.0),
)
ORDERED = ParamRule(
    "upper_bound", "be at least lower_bound={lower_bound} (got {upper_bound})",
    lambda p: p["upper_bound"] < 0 or p["lower_bound"] <= p["upper_bound"],
)  # fmt: skip
YOUNG = ParamRule(
    "beta1", "be below 1, and beta2 too, for the bias correction (got {beta1}, beta2={beta2})",
    lambda p: not p["bias_correction"] or max(p["beta1"], p["beta2"]) < 1,
)  # fmt: skip


def unbias(p: Params) -> tuple[float, float]:
    """Return the bias corrections, by which mean and mean square are divided."""
    return (1 - p["beta1"] ** p["t"], 1 - p["beta2"] ** p["t"]) if p["bias_correction"] else (1.0, 1.0)


def phase1(p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> Any:
    g, (first, second) = gradient(p, grad), unbias(p)
    mean = p["beta1"] * mean + (1 - p["beta1"]) * g
    var = p["beta2"] * var + (1 - p["beta2"]) * np.square(g)
    return mean / first / (np.sqrt(var / second) + p["eps"]) + p["wd"] * weight, mean, var


def torch_phase1(p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> Callable[[], Any]:
    rescaled, beta1, beta2, (first, second) = torch_gradient(p, grad), p["beta1"], p["beta2"], unbias(p)

    def step() -> Any:
        g = rescaled()
        mean.mul_(beta1).add_(g, alpha=1 - beta1)
        var.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        root = var.sqrt().div_(second**0.5).add_(p["eps"])
        return (mean / first).div_(root).add_(weight, alpha=p["wd"])

    return step


def clamp_norm(p: Params, r1: Any) -> Any:
    low, high = p["lower_bound"], p["upper_bound"]
    r1 = np.maximum(r1, low) if low >= 0 else r1
    return np.minimum(r1, high) if high >= 0 else r1


def phase2(p: Params, weight: Any, g: Any, r1: Any, r2: Any) -> Any:
    r1 = clamp_norm(p, r1)
    usable = (r1 != 0) & (r2 != 0)
    return weight - p["lr"] * np.where(usable, r1 / np.where(usable, r2, 1), 1.0) * g


def torch_ratio(p: Params) -> Callable[[Any, Any], Any]:
    """Return a function that computes the step length from both norms on their device, without waiting."""
    import torch

    rate, low, high = p["lr"], p["lower_bound"], p["upper_bound"]
    limits = {"min": low if low >= 0 else None, "max": high if high >= 0 else None}

    def ratio(r1: Any, r2: Any) -> Any:
        if low >= 0 or high >= 0:
            r1 = r1.clamp(**limits)
        return torch.where((r1 != 0) & (r2 != 0), r1 / r2, 1.0).mul_(-rate)

    return ratio


def lamb_formula(p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> Any:
    g, mean, var = phase1(p, weight, grad, mean, var)
    return phase2(p, weight, g, np.sqrt(np.square(weight).sum()), np.sqrt(np.square(g).sum())), mean, var


def torch_lamb(p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> Callable[[], Any]:
    import torch

    first, ratio = torch_phase1(p, weight, grad, mean, var), torch_ratio(p)
    # The norm of many 16-bit numbers does not fit into 16 bits.
    wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
    norm = torch.linalg.vector_norm

    def step() -> None:
        g = first()
        weight.addcmul_(g, ratio(norm(weight, dtype=wide), norm(g, dtype=wide)).to(weight.dtype))

    return step


def _phase1_operator(name: str, master: bool, *aliases: str) -> Operator:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        size, wide = tuple(p["shape"]), "float32" if master else p["dtype"]
        held = {state: TensorSpec(size, wide, *domain) for state, domain in MOMENTS.items()}
        return {"weight": TensorSpec(size, wide), "grad": TensorSpec(size, p["dtype"]), **held}

    def cost(p: Params) -> Cost:
        """Count 13 flops per element, and two for the bias correction."""
        n, narrow, wide = prod(p["shape"]), sizeof(p["dtype"]), 4 if master else sizeof(p["dtype"])
        return Cost((13 + 2 * p["bias_correction"]) * n, n * (3 * wide + narrow), 3 * n * wide)

    def build(p: Params, **tensors: Any) -> Launch:
        return _torch_phase1_launch(p, master, **tensors)

    return Operator(
        name=name,
        summary="LAMB, first part: the direction of the step" + (", from 16-bit gradients" if master else ""),
        category="optimizer",
        params=(shape("shape", "shape of the weight"), *PHASE1,
                dtype(*HALVES, default="float16", doc="element type of the gradient") if master else dtype(*FLOATS)),
        inputs=inputs,
        cost=cost,
        reference=phase1,
        presets=PRESETS,
        implementations=(_numpy_phase1(master), by_torch(build)),
        result_dtype=lambda p: "float32" if master else str(p["dtype"]),
        mutates=("mean", "var"),
        rules=(YOUNG,),
        aliases=aliases,
    )  # fmt: skip


def _torch_phase1_launch(p: Params, master: bool, weight: Any, grad: Any, mean: Any, var: Any) -> Launch:
    import torch

    wide = torch.empty_like(weight) if master else grad
    step = torch_phase1(p, weight, wide, mean, var)

    def launch() -> Any:
        if master:
            wide.copy_(grad)
        return step(), mean, var

    return launch


def _numpy_phase1(master: bool) -> Implementation:
    """Make an implementation that returns a new direction and changes mean and mean square in place."""

    def build(p: Params, **arrays: Any) -> Launch:
        def launch() -> Any:
            wide = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in arrays.items()}
            g, arrays["mean"][...], arrays["var"][...] = phase1(p, **wide)
            return g.astype("float32" if master else p["dtype"], copy=False), arrays["mean"], arrays["var"]

        return launch

    return Implementation("numpy", build)


def _phase2_inputs(p: Params, master: bool) -> dict[str, TensorSpec]:
    size, wide = tuple(p["shape"]), "float32" if master else p["dtype"]
    weight, g = TensorSpec(size, wide), TensorSpec(size, wide)
    norms = {name: TensorSpec((1,), wide, 0.5, 2.0) for name in ("r1", "r2")}
    return {"g": g, **norms, "weight32": weight} if master else {"weight": weight, "g": g, **norms}


def _phase2_operator(name: str, master: bool, *aliases: str) -> Operator:
    changed = ("weight32",) if master else ("weight",)

    def cost(p: Params) -> Cost:
        """Count a product and a difference per element, and the step length once."""
        n, narrow, wide = prod(p["shape"]), sizeof(p["dtype"]), 4 if master else sizeof(p["dtype"])
        return Cost(2 * n + 2, (2 * n + 2) * wide, n * wide + (n * narrow if master else 0))

    def reference(p: Params, g: Any, r1: Any, r2: Any, **weights: Any) -> Any:
        weight = phase2(p, weights[changed[0]], g, r1, r2)
        return (weight, weight) if master else weight

    def build(p: Params, g: Any, r1: Any, r2: Any, **weights: Any) -> Launch:
        import torch

        weight, ratio = weights[changed[0]], torch_ratio(p)
        rounded = torch.empty_like(weight, dtype=getattr(torch, p["dtype"]))

        def launch() -> Any:
            weight.addcmul_(g, ratio(r1, r2))
            return (rounded.copy_(weight), weight) if master else weight

        return launch

    return Operator(
        name=name,
        summary="LAMB, second part: the step, by the ratio of norms" + (", of a float32 copy" if master else ""),
        category="optimizer",
        params=(shape("shape", "shape of the weight"), lr(0.01), *BOUNDS,
                dtype(*HALVES, default="float16") if master else dtype(*FLOATS)),
        inputs=lambda p: _phase2_inputs(p, master),
        cost=cost,
        reference=reference,
        presets=PRESETS,
        implementations=(numpy_update(reference, changed, master), by_torch(build)),
        further_dtypes=lambda _: ("float32",),
        mutates=changed,
        rules=(ORDERED,),
        aliases=aliases,
    )  # fmt: skip


def _lamb_operator(name: str, summary: str, *aliases: str, master: bool = False) -> Operator:
    return update(
        name, summary, reference=lamb_formula, step=torch_lamb, params=(lr(0.01), *PHASE1, *BOUNDS), flops=21,
        states=MOMENTS, master=master, rules=(ORDERED, YOUNG), aliases=aliases,
    )  # fmt: skip


OPERATORS: tuple[Operator, ...] = (
    _phase1_operator("lamb_update_phase1", False),
    _phase1_operator("mp_lamb_update_phase1", True),
    _phase2_operator("lamb_update_phase2", False),
    _phase2_operator("mp_lamb_update_phase2", True),
    _lamb_operator("lamb_update", "LAMB, both phases and the two norms between them", "lamb", "LAMB"),
    _lamb_operator("mp_lamb_update", "lamb_update of a float32 copy of 16-bit weights", "mp_lamb", master=True),
)
