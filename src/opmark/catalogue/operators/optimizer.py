"""Optimizers' update steps of one tensor: sgd_update ... adadelta_update, with and without a float32 master weight."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._optimizer import (
    GRADIENT,
    LR_POSITIVE,
    POSITIVE,
    SIGNED,
    WAYS,
    WD,
    RoundedSteps,
    decayed_gradient,
    gradient,
    keywords_of,
    lr,
    step_counter,
    torch_decayed_gradient,
    torch_gradient,
    update,
)
from opmark.plugin import Operator, Params
from opmark.plugin.param import integer, real

MOMENTUM = real("momentum", "weight of the last step", 0.9, kind="amount")
BETAS = (
    real("beta1", "decay of the mean", 0.9, kind="amount"),
    real("beta2", "decay of the mean square", 0.999, kind="amount"),
)
EPS = real("eps", "added to the root of the mean square", 1e-8, kind="amount")
MOMENTS = {"mean": SIGNED, "var": POSITIVE}
# torch corrects the bias of new means by the number of steps; after this many the correction is exactly 1.
OLD = 1e6


def sgd_formula(p: Params, weight: Any, grad: Any) -> Any:
    return weight - p["lr"] * (gradient(p, grad) + p["wd"] * weight)


def _torch_sgd(p: Params, weight: Any, grad: Any, mom: Any = None, *, way: str) -> Any:
    from torch.optim.sgd import sgd

    g, options = torch_gradient(p, grad), sgd_options(p) | keywords_of(way, "SGD", weight)
    return lambda: sgd([weight], [g()], [mom], **options)


def sgd_options(p: Params) -> dict[str, Any]:
    plain = {"weight_decay": p["wd"], "nesterov": False, "maximize": False}
    if "momentum" not in p:
        return {**plain, "momentum": 0.0, "lr": p["lr"], "dampening": 0.0}
    # torch accumulates gradients and multiplies by the rate afterwards; MXNet's momentum holds the steps themselves.
    # With these rates torch's kernels compute that: mom <- momentum mom - lr g, weight <- weight + mom. With momentum 0
    # torch would skip the state, so a negligible momentum replaces it.
    return {**plain, "momentum": p["momentum"] or 1e-300, "lr": -1.0, "dampening": 1 + p["lr"]}


def sgd_mom_formula(p: Params, weight: Any, grad: Any, mom: Any) -> Any:
    mom = p["momentum"] * mom - p["lr"] * (gradient(p, grad) + p["wd"] * weight)
    return weight + mom, mom


def _nag(p: Params, weight: Any, grad: Any, mom: Any) -> Any:
    g = p["lr"] * (gradient(p, grad) + p["wd"] * weight)
    mom = p["momentum"] * mom - g
    return weight + p["momentum"] * mom - g, mom


def _torch_nag(p: Params, weight: Any, grad: Any, mom: Any) -> Any:
    rescaled, momentum, rate, wd = torch_gradient(p, grad), p["momentum"], p["lr"], p["wd"]

    def step() -> None:
        g = rescaled().add(weight, alpha=wd)
        mom.mul_(momentum).add_(g, alpha=-rate)
        weight.add_(mom, alpha=momentum).add_(g, alpha=-rate)

    return step


def moments(p: Params, g: Any, mean: Any, var: Any) -> tuple[Any, Any]:
    mean = p["beta1"] * mean + (1 - p["beta1"]) * g
    return mean, p["beta2"] * var + (1 - p["beta2"]) * np.square(g)


def adam_formula(p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> Any:
    mean, var = moments(p, decayed_gradient(p, grad, weight), mean, var)
    return weight - p["lr"] * mean / (np.sqrt(var) + p["eps"]), mean, var


def adam_options(p: Params) -> dict[str, Any]:
    rates = {"beta1": p["beta1"], "beta2": p["beta2"], "lr": p["lr"], "eps": p["eps"]}
    return {**rates, "weight_decay": p["wd"], "amsgrad": False, "maximize": False}


def _torch_adam(p: Params, weight: Any, grad: Any, mean: Any, var: Any, *, way: str) -> Any:
    from torch.optim.adam import adam

    clips = p["clip_gradient"] >= 0  # clipping comes after the decay, which torch must then not add again
    g = torch_decayed_gradient(p, grad, weight) if clips else torch_gradient(p, grad)
    options = adam_options(p) | ({"weight_decay": 0.0} if clips else {}) | keywords_of(way, "Adam", weight)
    steps = step_counter(way, weight, OLD)
    return lambda: adam([weight], [g()], [mean], [var], [], [steps], **options)


def adamw_formula(p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> Any:
    mean, var = moments(p, gradient(p, grad), mean, var)
    return weight - p["lr"] * (mean / (np.sqrt(var) + p["eps"]) + p["wd"] * weight), mean, var


def _torch_adamw(p: Params, weight: Any, grad: Any, mean: Any, var: Any, *, way: str) -> Any:
    from torch.optim.adamw import adamw

    options, steps = adam_options(p) | keywords_of(way, "AdamW", weight), step_counter(way, weight, OLD)
    g = torch_gradient(p, grad)
    return lambda: adamw([weight], [g()], [mean], [var], [], [steps], **options)


def _ftrl(p: Params, weight: Any, grad: Any, z: Any, n: Any) -> Any:
    g = gradient(p, grad)
    grown = n + np.square(g)
    z = z + g - (np.sqrt(grown) - np.sqrt(n)) * weight / p["lr"]
    shrunk = np.sign(z) * np.maximum(np.abs(z) - p["lamda1"], 0)
    return -shrunk / ((p["beta"] + np.sqrt(grown)) / p["lr"] + p["wd"]), z, grown


def _torch_ftrl(p: Params, weight: Any, grad: Any, z: Any, n: Any) -> Any:
    from torch.nn.functional import softshrink

    rescaled, rate = torch_gradient(p, grad), p["lr"]

    def step() -> None:
        g, root = rescaled(), n.sqrt()
        n.addcmul_(g, g)
        grown = n.sqrt()
        z.add_(g).addcmul_(grown - root, weight, value=-1 / rate)
        weight.copy_(softshrink(z, p["lamda1"])).div_(grown.add_(p["beta"]).div_(-rate).sub_(p["wd"]))

    return step


def _ftml(p: Params, weight: Any, grad: Any, d: Any, v: Any, z: Any) -> Any:
    g = decayed_gradient(p, grad, weight)
    v = p["beta2"] * v + (1 - p["beta2"]) * np.square(g)
    scale, unbias = (1 - p["beta1"] ** p["t"]) / p["lr"], 1 / (1 - p["beta2"] ** p["t"])
    new = scale * (np.sqrt(v * unbias) + p["eps"])
    z = p["beta1"] * z + (1 - p["beta1"]) * g - (new - p["beta1"] * d) * weight
    return -z / new, new, v, z


def _torch_ftml(p: Params, weight: Any, grad: Any, d: Any, v: Any, z: Any) -> Any:
    import torch

    decayed, beta1, beta2 = torch_decayed_gradient(p, grad, weight), p["beta1"], p["beta2"]
    scale, unbias = (1 - beta1 ** p["t"]) / p["lr"], 1 / (1 - beta2 ** p["t"])

    def step() -> None:
        g = decayed()
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        new = (v * unbias).sqrt_().add_(p["eps"]).mul_(scale)
        z.mul_(beta1).add_(g, alpha=1 - beta1).addcmul_(d.mul_(-beta1).add_(new), weight, value=-1)
        d.copy_(new)
        torch.div(z, new, out=weight).neg_()

    return step


def _rmsprop(p: Params, weight: Any, grad: Any, n: Any) -> Any:
    g = decayed_gradient(p, grad, weight)
    n = p["gamma1"] * n + (1 - p["gamma1"]) * np.square(g)
    return weight - p["lr"] * g / np.sqrt(n + p["eps"]), n


def _torch_rmsprop(p: Params, weight: Any, grad: Any, n: Any) -> Any:
    decayed, gamma, rate, eps = torch_decayed_gradient(p, grad, weight), p["gamma1"], p["lr"], p["eps"]

    def step() -> None:
        g = decayed()
        n.mul_(gamma).addcmul_(g, g, value=1 - gamma)
        weight.addcdiv_(g, n.add(eps).sqrt_(), value=-rate)

    return step


def _rmspropalex(p: Params, weight: Any, grad: Any, n: Any, g: Any, delta: Any) -> Any:
    now, gamma = decayed_gradient(p, grad, weight), p["gamma1"]
    n, g = gamma * n + (1 - gamma) * np.square(now), gamma * g + (1 - gamma) * now
    delta = p["gamma2"] * delta - p["lr"] * now / np.sqrt(n - np.square(g) + p["eps"])
    return weight + delta, n, g, delta


def _torch_rmspropalex(p: Params, weight: Any, grad: Any, n: Any, g: Any, delta: Any) -> Any:
    import torch

    decayed, gamma, rate, eps = torch_decayed_gradient(p, grad, weight), p["gamma1"], p["lr"], p["eps"]

    def step() -> None:
        now = decayed()
        n.mul_(gamma).addcmul_(now, now, value=1 - gamma)
        g.mul_(gamma).add_(now, alpha=1 - gamma)
        spread = torch.addcmul(n, g, g, value=-1).add_(eps).sqrt_()
        weight.add_(delta.mul_(p["gamma2"]).addcdiv_(now, spread, value=-rate))

    return step


def _signsgd(p: Params, weight: Any, grad: Any) -> Any:
    return (1 - p["lr"] * p["wd"]) * weight - p["lr"] * np.sign(grad)


def _torch_signsgd(p: Params, weight: Any, grad: Any) -> Any:
    keep, rate = 1 - p["lr"] * p["wd"], p["lr"]
    return lambda: weight.mul_(keep).add_(grad.sign(), alpha=-rate)


def _signum(p: Params, weight: Any, grad: Any, mom: Any) -> Any:
    mom = p["momentum"] * mom - (1 - p["momentum"]) * (gradient(p, grad) + p["wd"] * weight)
    return (1 - p["lr"] * p["wd_lh"]) * weight + p["lr"] * np.sign(mom), mom


def _torch_signum(p: Params, weight: Any, grad: Any, mom: Any) -> Any:
    rescaled, momentum, rate, wd = torch_gradient(p, grad), p["momentum"], p["lr"], p["wd"]
    keep = 1 - rate * p["wd_lh"]

    def step() -> None:
        g = rescaled().add(weight, alpha=wd)
        mom.mul_(momentum).add_(g, alpha=momentum - 1)
        weight.mul_(keep).add_(mom.sign(), alpha=rate)

    return step


def _away_from_zero(p: Params, outputs: Any, weight: Any, grad: Any, mom: Any) -> Any:
    """Do not compare weights whose momentum is near zero, as rounding decides its sign."""
    due, known = _signum(p, weight, grad, mom)
    return np.where(np.abs(known) < 0.02, due, outputs[0]), outputs[1]


def _adagrad(p: Params, weight: Any, grad: Any, history: Any) -> Any:
    g = gradient(p, grad) + p["wd"] * weight
    history = history + np.square(g)
    return weight - p["lr"] * g / (np.sqrt(history) + p["eps"]), history


def _torch_adagrad(p: Params, weight: Any, grad: Any, history: Any, *, way: str) -> Any:
    from torch.optim.adagrad import adagrad

    g, steps = torch_gradient(p, grad), step_counter(way, weight, 0.0)
    rates = {"lr": p["lr"], "weight_decay": p["wd"], "lr_decay": 0.0, "eps": p["eps"], "maximize": False}
    options = rates | keywords_of(way, "Adagrad", weight)
    return lambda: adagrad([weight], [g()], [history], [steps], **options)


def _adadelta(p: Params, weight: Any, grad: Any, acc_g: Any, acc_delta: Any) -> Any:
    g, rho = gradient(p, grad) + p["wd"] * weight, p["rho"]
    acc_g = rho * acc_g + (1 - rho) * np.square(g)
    delta = np.sqrt(acc_delta + p["eps"]) / np.sqrt(acc_g + p["eps"]) * g
    return weight - p["lr"] * delta, acc_g, rho * acc_delta + (1 - rho) * np.square(delta)


def _torch_adadelta(p: Params, weight: Any, grad: Any, acc_g: Any, acc_delta: Any) -> Any:
    import torch
    from torch.optim.adadelta import adadelta

    g, steps = torch_gradient(p, grad), torch.tensor(0.0)
    rates = {"lr": p["lr"], "rho": p["rho"], "eps": p["eps"], "weight_decay": p["wd"], "maximize": False}
    return lambda: adadelta([weight], [g()], [acc_g], [acc_delta], [steps], foreach=False, **rates)


# Some operators come twice: `mp_` works on a float32 copy of 16-bit weights.
_SGD = partial(
    update,
    reference=sgd_formula,
    step=_torch_sgd,
    params=(lr(0.01), WD, *GRADIENT),
    flops=5,
    path="torch.optim.sgd.sgd",
    ways=WAYS,
)
_SGD_MOM = partial(
    update,
    reference=sgd_mom_formula,
    step=_torch_sgd,
    params=(lr(0.01), MOMENTUM, WD, *GRADIENT),
    flops=7,
    states={"mom": SIGNED},
    path="torch.optim.sgd.sgd",
    ways=WAYS,
)
_NAG = partial(
    update,
    reference=_nag,
    step=_torch_nag,
    params=(lr(0.01), MOMENTUM, WD, *GRADIENT),
    flops=9,
    states={"mom": SIGNED},
)
_ADAM = partial(
    update,
    reference=adam_formula,
    step=_torch_adam,
    params=(lr(1e-3), *BETAS, EPS, WD, *GRADIENT),
    flops=15,
    states=MOMENTS,
    path="torch.optim.adam.adam",
    ways=WAYS,
)
_ADAMW = partial(
    update,
    reference=adamw_formula,
    step=_torch_adamw,
    params=(lr(1e-3), *BETAS, EPS, real("wd", "weight decay", 0.01, kind="amount"), *GRADIENT),
    flops=14,
    states=MOMENTS,
    path="torch.optim.adamw.adamw",
    ways=WAYS,
)

OPERATORS: tuple[Operator, ...] = (
    _SGD("sgd_update", "weight - lr (grad + wd weight)", aliases=("sgd", "SGD")),
    _SGD("mp_sgd_update", "sgd_update of a float32 copy of 16-bit weights", master=True),
    _SGD_MOM("sgd_mom_update", "mom <- momentum mom - lr (grad + wd weight); weight + mom", aliases=("sgd_momentum",)),
    _SGD_MOM("mp_sgd_mom_update", "sgd_mom_update of a float32 copy of 16-bit weights", master=True),
    _NAG("nag_mom_update", "Nesterov's accelerated gradient", aliases=("nag", "nag_update")),
    _NAG("mp_nag_mom_update", "nag_mom_update of a float32 copy of 16-bit weights", master=True),
    _ADAM("adam_update", "weight - lr mean / (sqrt(var) + eps), from running mean and mean square",
          aliases=("adam", "Adam")),
    _ADAM("mp_adam_update", "adam_update of a float32 copy of 16-bit weights", master=True),
    _ADAMW("adamw_update", "adam_update with the weight decay outside", aliases=("adamw", "AdamW")),
    _ADAMW("mp_adamw_update", "adamw_update of a float32 copy of 16-bit weights", master=True),
    update("ftrl_update", "follow the regularized leader: weights from the sum of gradients, shrunk by lamda1",
           reference=_ftrl, step=_torch_ftrl, flops=16, states={"z": SIGNED, "n": POSITIVE}, rules=(LR_POSITIVE,),
           params=(lr(0.1), real("lamda1", "L1 regularization", 0.01, kind="amount"),
                   real("beta", "added to the root of the sum of squares", 1.0, kind="amount"), WD, *GRADIENT),
           # The difference of two roots, which amplifies rounding errors, is divided by lr.
           tolerance=RoundedSteps(), aliases=("ftrl", "Ftrl")),
    update("ftml_update", "follow the moving leader", reference=_ftml, step=_torch_ftml, flops=19,
           states={"d": POSITIVE, "v": POSITIVE, "z": SIGNED}, rules=(LR_POSITIVE,),
           params=(lr(0.0025), real("beta1", "decay of z", 0.6, kind="amount"),
                   real("beta2", "decay of the mean square", 0.999, kind="amount"), EPS,
                   integer("t", "number of the step, for the bias correction", 100, kind="size"),
                   WD, *GRADIENT),
           aliases=("ftml", "FTML")),
    update("rmsprop_update", "weight - lr grad / sqrt(mean square + eps)", reference=_rmsprop, step=_torch_rmsprop,
           # torch's RMSprop adds eps to the root, which is a different step.
           flops=12, states={"n": POSITIVE}, aliases=("rmsprop",),
           params=(lr(1e-3), real("gamma1", "decay of the mean square", 0.95, kind="amount"), EPS, WD, *GRADIENT)),
    update("rmspropalex_update", "rmsprop with the variance instead of the mean square, and momentum",
           reference=_rmspropalex, step=_torch_rmspropalex, flops=19, aliases=("rmspropalex",),
           # A constant gradient has variance zero, so that rounding must stay below eps, which 16-bit types do not.
           dtypes=("float64", "float32"), states={"n": (1.0, 2.0), "g": (-0.5, 0.5), "delta": (-0.125, 0.125)},
           params=(lr(1e-5), real("gamma1", "decay of mean and mean square", 0.95, kind="amount"),
                   real("gamma2", "weight of the last step", 0.9, kind="amount"),
                   real("eps", "added to the variance", 1e-5, kind="amount"), WD, *GRADIENT)),
    update("signsgd_update", "weight - lr (sign(grad) + wd weight)", reference=_signsgd, step=_torch_signsgd, flops=3,
           params=(lr(0.01), WD), aliases=("signsgd",)),
    update("signum_update", "weight + lr sign(mom), of a running mean of gradients", reference=_signum,
           step=_torch_signum, flops=9, states={"mom": SIGNED}, observe=_away_from_zero,
           params=(lr(0.01), MOMENTUM, WD, real("wd_lh", "weight decay outside of the sign", 0.0, kind="amount"),
                   *GRADIENT), aliases=("signum", "Signum")),
    update("adagrad_update", "weight - lr grad / (sqrt(sum of squares) + eps)", reference=_adagrad,
           step=_torch_adagrad, flops=10, states={"history": POSITIVE}, path="torch.optim.adagrad.adagrad",
           ways=WAYS, params=(lr(0.01), EPS, WD, *GRADIENT), aliases=("adagrad", "Adagrad")),
    update("adadelta_update", "steps as large as the last ones, over the root mean square of gradients",
           reference=_adadelta, step=_torch_adadelta, flops=19, states={"acc_g": POSITIVE, "acc_delta": POSITIVE},
           path="torch.optim.adadelta.adadelta",
           params=(lr(0.01), real("rho", "decay of both mean squares", 0.9, kind="amount"),
                   real("eps", "added under both roots", 1e-6, kind="amount"), WD, *GRADIENT),
           aliases=("adadelta", "Adadelta")),
)  # fmt: skip
