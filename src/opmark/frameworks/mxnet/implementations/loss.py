"""Losses by Gluon's formulas, and their reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.frameworks.mxnet.implementations._rows import row
from opmark.plugin import Implementation, Params


def _reduce(p: Params, losses: Any) -> Any:
    """Reduce losses; a single number has no axes."""
    if p["reduction"] == "none":
        return losses
    total = losses.mean() if p["reduction"] == "mean" else losses.sum()
    return (total / losses.shape[0] if p["reduction"] == "batchmean" else total).reshape(())


def _loss(formula: Callable[..., Any], path: str = "") -> Implementation:
    return row(lambda mx, p, **tensors: _reduce(p, formula(mx, p, **tensors)), path)


def _softplus(mx: Any, x: Any) -> Any:
    return mx.nd.Activation(x, act_type="softrelu")


def _with_logits(mx: Any, x: Any, target: Any) -> Any:
    return mx.nd.relu(x) - x * target + _softplus(mx, -mx.nd.abs(x))


def _bce(mx: Any, p: Params, x: Any, target: Any) -> Any:
    return -(target * mx.nd.log(x) + (1 - target) * mx.nd.log(1 - x))


def _rounded_off(mx: Any, x: Any, width: float) -> Any:
    return mx.nd.smooth_l1(x, scalar=width**-0.5)


def _poisson(mx: Any, p: Params, x: Any, target: Any) -> Any:
    return mx.nd.exp(x) - target * x if p["log_input"] else x - target * mx.nd.log(x + 1e-8)


def _hinge_embedding(mx: Any, p: Params, x: Any, target: Any) -> Any:
    return mx.nd.where(target > 0, x, mx.nd.relu(p["margin"] - x))


def _cross_entropy(mx: Any, p: Params, x: Any, target: Any) -> Any:
    logs = mx.nd.log_softmax(x)
    losses = -mx.nd.pick(logs, target)
    if not p["label_smoothing"]:
        return losses
    return (1 - p["label_smoothing"]) * losses - p["label_smoothing"] * mx.nd.mean(logs, axis=-1)


def _multi_margin(mx: Any, p: Params, x: Any, target: Any) -> Any:
    """Exclude the right class, which would add the margin."""
    right = mx.nd.pick(x, target, keepdims=True)
    return (mx.nd.sum(mx.nd.relu(p["margin"] + mx.nd.broadcast_sub(x, right)), axis=-1) - p["margin"]) / p["classes"]


def _cosine(mx: Any, p: Params, x: Any, other: Any, target: Any) -> Any:
    squares = [mx.nd.sum(mx.nd.square(v), axis=1) + 1e-12 for v in (x, other)]
    cosine = mx.nd.sum(x * other, axis=1) / mx.nd.sqrt(squares[0] * squares[1])
    return mx.nd.where(target > 0, 1 - cosine, mx.nd.relu(cosine - p["margin"]))


def _triplet(mx: Any, p: Params, anchor: Any, positive: Any, negative: Any) -> Any:
    near, far = (mx.nd.sqrt(mx.nd.sum(mx.nd.square(anchor - v + 1e-6), axis=1)) for v in (positive, negative))
    return mx.nd.relu(near - far + p["margin"])


def _ctc(mx: Any, p: Params, log_probs: Any, targets: Any) -> Any:
    """MXNet applies log_softmax itself, which leaves logarithms of probabilities unchanged."""
    losses = mx.nd.CTCLoss(log_probs, targets.astype(log_probs.dtype))
    return losses / p["labels"] if p["reduction"] == "mean" else losses


IMPLEMENTATIONS = {
    "l1_loss": _loss(lambda mx, p, x, target: mx.nd.abs(x - target)),
    "mse_loss": _loss(lambda mx, p, x, target: mx.nd.square(x - target)),
    "smooth_l1": _loss(lambda mx, p, x: mx.nd.smooth_l1(x, scalar=p["sigma"]), "mxnet.nd.smooth_l1"),
    "smooth_l1_loss": _loss(lambda mx, p, x, target: _rounded_off(mx, x - target, p["beta"])),
    "huber_loss": _loss(lambda mx, p, x, target: p["delta"] * _rounded_off(mx, x - target, p["delta"])),
    "bce_loss": _loss(_bce),
    "bce_with_logits": _loss(lambda mx, p, x, target: _with_logits(mx, x, target)),
    "multilabel_soft_margin_loss": _loss(lambda mx, p, x, target: mx.nd.mean(_with_logits(mx, x, target), axis=-1)),
    "kl_div": _loss(lambda mx, p, x, target: target * (mx.nd.log(target) - x)),
    "poisson_nll_loss": _loss(_poisson),
    "gaussian_nll_loss": _loss(lambda mx, p, x, target, var: (mx.nd.log(var) + mx.nd.square(x - target) / var) / 2),
    "soft_margin_loss": _loss(lambda mx, p, x, target: _softplus(mx, -target * x)),
    "hinge_loss": _loss(lambda mx, p, x, target: mx.nd.relu(p["margin"] - x * target)),
    "hinge_embedding_loss": _loss(_hinge_embedding),
    "margin_ranking_loss": _loss(lambda mx, p, x, other, target: mx.nd.relu(p["margin"] - target * (x - other))),
    "cross_entropy": _loss(_cross_entropy),
    "nll_loss": _loss(lambda mx, p, x, target: -mx.nd.pick(x, target), "mxnet.nd.pick"),
    "multi_margin_loss": _loss(_multi_margin),
    "cosine_embedding_loss": _loss(_cosine),
    "triplet_margin_loss": _loss(_triplet),
    "scaled_loss": _loss(lambda mx, p, x: p["grad_scale"] * x),
    "ctc_loss": _loss(_ctc, "mxnet.nd.CTCLoss"),
}
