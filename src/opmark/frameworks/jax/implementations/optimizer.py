"""Update steps of optimizers as pure functions, which return new weights and states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.frameworks.jax.implementations._modules import jnp, nn, row, wide
from opmark.plugin import Implementation, Params

Step = Callable[..., tuple[Any, ...]]
"""step(p, weight, grad, **states) returns (weight, *states)."""


def _clip(p: Params, grad: Any) -> Any:
    limit = p.get("clip_gradient", -1.0)
    return jnp.clip(grad, -limit, limit) if limit >= 0 else grad


def _gradient(p: Params, grad: Any) -> Any:
    return _clip(p, p.get("rescale_grad", 1.0) * grad)


def _decayed_gradient(p: Params, grad: Any, weight: Any) -> Any:
    """Add weight decay to the gradient, then clip it."""
    return _clip(p, p.get("rescale_grad", 1.0) * grad + p["wd"] * weight)


def _sgd(p: Params, weight: Any, grad: Any) -> tuple[Any, ...]:
    return (weight - p["lr"] * (_gradient(p, grad) + p["wd"] * weight),)


def _sgd_mom(p: Params, weight: Any, grad: Any, mom: Any) -> tuple[Any, ...]:
    mom = p["momentum"] * mom - p["lr"] * (_gradient(p, grad) + p["wd"] * weight)
    return weight + mom, mom


def _nag(p: Params, weight: Any, grad: Any, mom: Any) -> tuple[Any, ...]:
    g = p["lr"] * (_gradient(p, grad) + p["wd"] * weight)
    mom = p["momentum"] * mom - g
    return weight + p["momentum"] * mom - g, mom


def _moments(p: Params, g: Any, mean: Any, var: Any) -> tuple[Any, Any]:
    mean = p["beta1"] * mean + (1 - p["beta1"]) * g
    return mean, p["beta2"] * var + (1 - p["beta2"]) * jnp.square(g)


def _adam(p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> tuple[Any, ...]:
    mean, var = _moments(p, _decayed_gradient(p, grad, weight), mean, var)
    return weight - p["lr"] * mean / (jnp.sqrt(var) + p["eps"]), mean, var


def _adamw(p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> tuple[Any, ...]:
    mean, var = _moments(p, _gradient(p, grad), mean, var)
    return weight - p["lr"] * (mean / (jnp.sqrt(var) + p["eps"]) + p["wd"] * weight), mean, var


def _ftrl(p: Params, weight: Any, grad: Any, z: Any, n: Any) -> tuple[Any, ...]:
    g = _gradient(p, grad)
    grown = n + jnp.square(g)
    z = z + g - (jnp.sqrt(grown) - jnp.sqrt(n)) * weight / p["lr"]
    shrunk = jnp.sign(z) * nn.relu(jnp.abs(z) - p["lamda1"])
    return -shrunk / ((p["beta"] + jnp.sqrt(grown)) / p["lr"] + p["wd"]), z, grown


def _ftml(p: Params, weight: Any, grad: Any, d: Any, v: Any, z: Any) -> tuple[Any, ...]:
    g = _decayed_gradient(p, grad, weight)
    v = p["beta2"] * v + (1 - p["beta2"]) * jnp.square(g)
    scale, unbias = (1 - p["beta1"] ** p["t"]) / p["lr"], 1 / (1 - p["beta2"] ** p["t"])
    new = scale * (jnp.sqrt(v * unbias) + p["eps"])
    z = p["beta1"] * z + (1 - p["beta1"]) * g - (new - p["beta1"] * d) * weight
    return -z / new, new, v, z


def _rmsprop(p: Params, weight: Any, grad: Any, n: Any) -> tuple[Any, ...]:
    g = _decayed_gradient(p, grad, weight)
    n = p["gamma1"] * n + (1 - p["gamma1"]) * jnp.square(g)
    return weight - p["lr"] * g / jnp.sqrt(n + p["eps"]), n


def _rmspropalex(p: Params, weight: Any, grad: Any, n: Any, g: Any, delta: Any) -> tuple[Any, ...]:
    now, gamma = _decayed_gradient(p, grad, weight), p["gamma1"]
    n, g = gamma * n + (1 - gamma) * jnp.square(now), gamma * g + (1 - gamma) * now
    delta = p["gamma2"] * delta - p["lr"] * now / jnp.sqrt(n - jnp.square(g) + p["eps"])
    return weight + delta, n, g, delta


def _signsgd(p: Params, weight: Any, grad: Any) -> tuple[Any, ...]:
    return ((1 - p["lr"] * p["wd"]) * weight - p["lr"] * jnp.sign(grad),)


def _signum(p: Params, weight: Any, grad: Any, mom: Any) -> tuple[Any, ...]:
    mom = p["momentum"] * mom - (1 - p["momentum"]) * (_gradient(p, grad) + p["wd"] * weight)
    return (1 - p["lr"] * p["wd_lh"]) * weight + p["lr"] * jnp.sign(mom), mom


def _adagrad(p: Params, weight: Any, grad: Any, history: Any) -> tuple[Any, ...]:
    g = _gradient(p, grad) + p["wd"] * weight
    history = history + jnp.square(g)
    return weight - p["lr"] * g / (jnp.sqrt(history) + p["eps"]), history


def _adadelta(p: Params, weight: Any, grad: Any, acc_g: Any, acc_delta: Any) -> tuple[Any, ...]:
    g, rho = _gradient(p, grad) + p["wd"] * weight, p["rho"]
    acc_g = rho * acc_g + (1 - rho) * jnp.square(g)
    delta = jnp.sqrt(acc_delta + p["eps"]) / jnp.sqrt(acc_g + p["eps"]) * g
    return weight - p["lr"] * delta, acc_g, rho * acc_delta + (1 - rho) * jnp.square(delta)


def _phase1(p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> tuple[Any, ...]:
    mean, var = _moments(p, _gradient(p, grad), mean, var)
    first, second = (1 - p[beta] ** p["t"] if p["bias_correction"] else 1.0 for beta in ("beta1", "beta2"))
    return mean / first / (jnp.sqrt(var / second) + p["eps"]) + p["wd"] * weight, mean, var


def _phase2(p: Params, weight: Any, g: Any, r1: Any, r2: Any) -> tuple[Any, ...]:
    low, high = p["lower_bound"], p["upper_bound"]
    r1 = jnp.clip(r1, low if low >= 0 else None, high if high >= 0 else None)
    ratio = jnp.where((r1 != 0) & (r2 != 0), r1 / r2, 1.0)
    return ((weight - p["lr"] * ratio * g).astype(weight.dtype),)


def _lamb(p: Params, weight: Any, grad: Any, mean: Any, var: Any) -> tuple[Any, ...]:
    """Compute norms in float32: the norm of many 16-bit numbers does not fit into 16 bits."""
    g, mean, var = _phase1(p, weight, grad, mean, var)
    r1, r2 = (jnp.sqrt(jnp.square(wide(one)).sum()) for one in (weight, g))
    return *_phase2(p, weight, g, r1, r2), mean, var


def _lars(p: Params, lrs: Any, weights_sum_sq: Any, grads_sum_sq: Any, wds: Any) -> Any:
    norm, grad = jnp.sqrt(weights_sum_sq), jnp.sqrt(grads_sum_sq) * p["rescale_grad"]
    usable = (norm > 0) & (grad > 0)
    return jnp.where(usable, lrs * p["eta"] * norm / (grad + wds * norm + p["eps"]), lrs)


def _plain(step: Step) -> Implementation:
    """Make an implementation of a step of one tensor, or of a stack of tensors."""

    def call(p: Params, weight: Any, grad: Any, **states: Any) -> Any:
        return _map_step(p, step)(weight, grad, *states.values())

    return row(call)


def _master(step: Step) -> Implementation:
    """Make an implementation of a step on a float32 copy of 16-bit weights; it returns weight, states and copy."""

    def call(p: Params, weight32: Any, grad: Any, **states: Any) -> Any:
        weight, *held = _map_step(p, step)(weight32, grad.astype(weight32.dtype), *states.values())
        return (weight.astype(p["dtype"]), *held, weight)

    return row(call)


def _map_step(p: Params, step: Step) -> Callable[..., Any]:
    from jax import vmap

    def one(*tensors: Any) -> Any:
        return step(p, *tensors)

    return vmap(one) if "count" in p else one


def _mp_phase2(p: Params, g: Any, r1: Any, r2: Any, weight32: Any) -> Any:
    (weight,) = _phase2(p, weight32, g, r1, r2)
    return weight.astype(p["dtype"]), weight


_STEPS: dict[str, Step] = {
    "sgd": _sgd, "sgd_mom": _sgd_mom, "nag_mom": _nag, "adam": _adam, "adamw": _adamw, "lamb": _lamb, "ftrl": _ftrl,
    "ftml": _ftml, "rmsprop": _rmsprop, "rmspropalex": _rmspropalex, "signsgd": _signsgd, "signum": _signum,
    "adagrad": _adagrad, "adadelta": _adadelta,
}  # fmt: skip
_WITH_MASTER = ("sgd", "sgd_mom", "nag_mom", "adam", "adamw", "lamb")
_OF_MANY = ("sgd", "sgd_mom", "adam", "adamw", "lamb")
_OF_MANY_WITH_MASTER = ("sgd", "sgd_mom", "adamw", "lamb")

IMPLEMENTATIONS = {
    **{f"{name}_update": _plain(step) for name, step in _STEPS.items()},
    **{f"mp_{name}_update": _master(_STEPS[name]) for name in _WITH_MASTER},
    **{f"multi_{name}_update": _plain(_STEPS[name]) for name in _OF_MANY},
    **{f"multi_mp_{name}_update": _master(_STEPS[name]) for name in _OF_MANY_WITH_MASTER},
    "lamb_update_phase1": row(_phase1),
    "mp_lamb_update_phase1": row(_phase1),
    "lamb_update_phase2": row(lambda p, weight, g, r1, r2: _phase2(p, weight, g, r1, r2)),
    "mp_lamb_update_phase2": row(_mp_phase2),
    "multi_lars": row(_lars),
}
