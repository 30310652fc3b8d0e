"""Losses per element or row, and their reduction. JAX has no losses, so they are composed of its functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.frameworks.jax.implementations._modules import jnp, nn, row, special
from opmark.plugin import Implementation, Params


def _reduce(losses: Callable[..., Any]) -> Implementation:
    def call(p: Params, **tensors: Any) -> Any:
        found = losses(p, *tensors.values())
        if p["reduction"] == "none":
            return found
        if p["reduction"] == "batchmean":
            return found.sum() / len(found)
        return found.mean() if p["reduction"] == "mean" else found.sum()

    return row(call)


def _smooth_l1(p: Params, x: Any, target: Any) -> Any:
    distance, beta = jnp.abs(x - target), p["beta"]
    return jnp.where(distance < beta, jnp.square(distance) / 2 / beta, distance - beta / 2)


def _smooth_l1_of_one(p: Params, x: Any) -> Any:
    return _smooth_l1({"beta": p["sigma"] ** -2}, x, 0)


def _huber(p: Params, x: Any, target: Any) -> Any:
    distance, delta = jnp.abs(x - target), p["delta"]
    return jnp.where(distance < delta, jnp.square(distance) / 2, delta * (distance - delta / 2))


def _bce(p: Params, x: Any, target: Any) -> Any:
    return -(target * jnp.log(x) + (1 - target) * jnp.log1p(-x))


def _bce_with_logits(p: Params, x: Any, target: Any) -> Any:
    return -(target * nn.log_sigmoid(x) + (1 - target) * nn.log_sigmoid(-x))


def _poisson_nll(p: Params, x: Any, target: Any) -> Any:
    return jnp.exp(x) - target * x if p["log_input"] else x - target * jnp.log(x + 1e-8)


def _gaussian_nll(p: Params, x: Any, target: Any, var: Any) -> Any:
    return (jnp.log(var) + jnp.square(x - target) / var) / 2


def _hinge_embedding(p: Params, x: Any, target: Any) -> Any:
    return jnp.where(target > 0, x, nn.relu(p["margin"] - x))


def _margin_ranking(p: Params, x: Any, other: Any, target: Any) -> Any:
    return nn.relu(p["margin"] - target * (x - other))


def _at(x: Any, target: Any) -> Any:
    return jnp.take_along_axis(x, target[:, None], axis=1)[:, 0]


def _cross_entropy(p: Params, x: Any, target: Any) -> Any:
    scores, smooth = nn.log_softmax(x, axis=1), p["label_smoothing"]
    right = -_at(scores, target)
    return (1 - smooth) * right - smooth * scores.mean(axis=1) if smooth else right


def _multi_margin(p: Params, x: Any, target: Any) -> Any:
    lost = nn.relu(p["margin"] - _at(x, target)[:, None] + x)
    wrong = jnp.arange(x.shape[1]) != target[:, None]
    return jnp.where(wrong, lost, 0).sum(axis=1) / x.shape[1]


def _cosine(p: Params, x: Any, other: Any, target: Any) -> Any:
    squares = jnp.vecdot(x, x), jnp.vecdot(other, other)
    cosine = jnp.vecdot(x, other) / jnp.sqrt((squares[0] + 1e-12) * (squares[1] + 1e-12))
    return jnp.where(target > 0, 1 - cosine, nn.relu(cosine - p["margin"]))


def _triplet(p: Params, anchor: Any, positive: Any, negative: Any) -> Any:
    near, far = (jnp.linalg.norm(anchor - other + 1e-6, axis=1) for other in (positive, negative))
    return nn.relu(near - far + p["margin"])


IMPLEMENTATIONS = {
    "l1_loss": _reduce(lambda p, x, target: jnp.abs(x - target)),
    "mse_loss": _reduce(lambda p, x, target: jnp.square(x - target)),
    "smooth_l1_loss": _reduce(_smooth_l1),
    "smooth_l1": _reduce(_smooth_l1_of_one),
    "huber_loss": _reduce(_huber),
    "bce_loss": _reduce(_bce),
    "bce_with_logits": _reduce(_bce_with_logits),
    "kl_div": _reduce(lambda p, x, target: special.xlogy(target, target) - target * x),
    "poisson_nll_loss": _reduce(_poisson_nll),
    "gaussian_nll_loss": _reduce(_gaussian_nll),
    "soft_margin_loss": _reduce(lambda p, x, target: nn.softplus(-target * x)),
    "hinge_loss": _reduce(lambda p, x, target: nn.relu(p["margin"] - x * target)),
    "hinge_embedding_loss": _reduce(_hinge_embedding),
    "margin_ranking_loss": _reduce(_margin_ranking),
    "scaled_loss": _reduce(lambda p, x: p["grad_scale"] * x),
    "cross_entropy": _reduce(_cross_entropy),
    "nll_loss": _reduce(lambda p, x, target: -_at(x, target)),
    "multi_margin_loss": _reduce(_multi_margin),
    "multilabel_soft_margin_loss": _reduce(lambda p, x, target: _bce_with_logits(p, x, target).mean(axis=1)),
    "cosine_embedding_loss": _reduce(_cosine),
    "triplet_margin_loss": _reduce(_triplet),
}
