"""Losses per element or row and their reduction, and densities."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import Any

from opmark.frameworks.onnx.implementations._graph import GraphBuilder, graph
from opmark.frameworks.onnx.implementations.elementwise import log1p
from opmark.plugin import Implementation, Params


def _reduce(g: GraphBuilder, p: Params, losses: str) -> Any:
    if p["reduction"] == "batchmean":
        return g.Div(g.ReduceSum(losses, keepdims=0), float(p["shape"][0]))
    if p["reduction"] == "none":
        return losses
    return (g.ReduceMean if p["reduction"] == "mean" else g.ReduceSum)(losses, keepdims=0)


def _loss(losses: Callable[..., Any]) -> Implementation:
    return graph(lambda g, p, **names: _reduce(g, p, losses(g, p, **names)))


def _square(g: GraphBuilder, x: str) -> Any:
    return g.Mul(x, x)


def _smooth(g: GraphBuilder, distance: str, edge: float, parabola: float, slope: float) -> Any:
    """Return `parabola` times the square within the edge, and a straight line of this slope beyond it."""
    inside = g.Mul(_square(g, distance), parabola)
    return g.Where(g.Less(distance, edge), inside, g.Mul(g.Sub(distance, edge / 2), slope))


def _smooth_l1(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    return _smooth(g, g.Abs(g.Sub(x, target)), p["beta"], 0.5 / p["beta"], 1.0)


def _smooth_l1_of_one(g: GraphBuilder, p: Params, x: str) -> Any:
    beta = p["sigma"] ** -2
    return _smooth(g, g.Abs(x), beta, 0.5 / beta, 1.0)


def _huber(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    return _smooth(g, g.Abs(g.Sub(x, target)), p["delta"], 0.5, p["delta"])


def _bce(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    right, wrong = g.Mul(target, g.Log(x)), g.Mul(g.Sub(1.0, target), g.Log(g.Sub(1.0, x)))
    return g.Neg(g.Add(right, wrong))


def _bce_with_logits(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    return g.Add(g.Sub(g.Relu(x), g.Mul(x, target)), log1p(g, g.Exp(g.Neg(g.Abs(x)))))


def _kl_div(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    return g.Mul(target, g.Sub(g.Log(target), x))


def _poisson_nll(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    if p["log_input"]:
        return g.Sub(g.Exp(x), g.Mul(target, x))
    return g.Sub(x, g.Mul(target, g.Log(g.Add(x, 1e-8))))


def _gaussian_nll(g: GraphBuilder, p: Params, x: str, target: str, var: str) -> Any:
    return g.Mul(g.Add(g.Log(var), g.Div(_square(g, g.Sub(x, target)), var)), 0.5)


def _soft_margin(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    return log1p(g, g.Exp(g.Neg(g.Mul(target, x))))


def _hinge(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    return g.Relu(g.Sub(p["margin"], g.Mul(x, target)))


def _hinge_embedding(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    return g.Where(g.Greater(target, 0.0), x, g.Relu(g.Sub(p["margin"], x)))


def _margin_ranking(g: GraphBuilder, p: Params, x: str, other: str, target: str) -> Any:
    return g.Relu(g.Sub(p["margin"], g.Mul(target, g.Sub(x, other))))


def _at(g: GraphBuilder, x: str, target: str) -> Any:
    """Return the score of the right class of each row, as a column."""
    return g.GatherElements(x, g.Unsqueeze(target, [1]), axis=1)


def _cross_entropy(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    smooth = p["label_smoothing"]
    if not smooth:
        return g.SoftmaxCrossEntropyLoss(x, target, reduction=p["reduction"])
    scores = g.LogSoftmax(x, axis=1)
    right = g.Mul(g.Squeeze(_at(g, scores, target), [1]), 1 - smooth)
    return _reduce(g, p, g.Neg(g.Add(right, g.Mul(g.ReduceMean(scores, [1], keepdims=0), smooth))))


def _nll(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    return g.NegativeLogLikelihoodLoss(x, target, reduction=p["reduction"])


def _multi_margin(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    """Subtract the margin, as the sum includes the right class."""
    lost = g.Relu(g.Add(g.Sub(x, _at(g, x, target)), p["margin"]))
    return g.Div(g.Sub(g.ReduceSum(lost, [1], keepdims=0), max(p["margin"], 0.0)), float(p["classes"]))


def _multilabel(g: GraphBuilder, p: Params, x: str, target: str) -> Any:
    return g.ReduceMean(_bce_with_logits(g, p, x, target), [1], keepdims=0)


def _cosine(g: GraphBuilder, p: Params, x: str, other: str, target: str) -> Any:
    def total(one: str, two: str) -> Any:
        return g.ReduceSum(g.Mul(one, two), [1], keepdims=0)

    lengths = g.Sqrt(g.Mul(g.Add(total(x, x), 1e-12), g.Add(total(other, other), 1e-12)))
    cosine = g.Div(total(x, other), lengths)
    return g.Where(g.Greater(target, 0.0), g.Sub(1.0, cosine), g.Relu(g.Sub(cosine, p["margin"])))


def _triplet(g: GraphBuilder, p: Params, anchor: str, positive: str, negative: str) -> Any:
    def distance(other: str) -> Any:
        return g.ReduceL2(g.Add(g.Sub(anchor, other), 1e-6), [1], keepdims=0)

    return g.Relu(g.Add(g.Sub(distance(positive), distance(negative)), p["margin"]))


def _density(logarithm: Callable[..., Any]) -> Implementation:
    def draw(g: GraphBuilder, p: Params, **names: str) -> Any:
        found = logarithm(g, **names)
        return found if p["log"] else g.Exp(found)

    return graph(draw)


def _normal(g: GraphBuilder, sample: str, mean: str, std: str) -> Any:
    away = g.Div(g.Sub(sample, mean), std)
    return g.Sub(g.Mul(_square(g, away), -0.5), g.Add(g.Log(std), log(2 * pi) / 2))


def _exponential(g: GraphBuilder, sample: str, rate: str) -> Any:
    return g.Sub(g.Log(rate), g.Mul(rate, sample))


def _uniform(g: GraphBuilder, sample: str, low: str, high: str) -> Any:
    inside = g.And(g.GreaterOrEqual(sample, low), g.Less(sample, high))
    return g.Where(inside, g.Neg(g.Log(g.Sub(high, low))), float("-inf"))


IMPLEMENTATIONS = {
    "l1_loss": _loss(lambda g, p, x, target: g.Abs(g.Sub(x, target))),
    "mse_loss": _loss(lambda g, p, x, target: _square(g, g.Sub(x, target))),
    "smooth_l1_loss": _loss(_smooth_l1),
    "smooth_l1": _loss(_smooth_l1_of_one),
    "huber_loss": _loss(_huber),
    "bce_loss": _loss(_bce),
    "bce_with_logits": _loss(_bce_with_logits),
    "kl_div": _loss(_kl_div),
    "poisson_nll_loss": _loss(_poisson_nll),
    "gaussian_nll_loss": _loss(_gaussian_nll),
    "soft_margin_loss": _loss(_soft_margin),
    "hinge_loss": _loss(_hinge),
    "hinge_embedding_loss": _loss(_hinge_embedding),
    "margin_ranking_loss": _loss(_margin_ranking),
    "scaled_loss": _loss(lambda g, p, x: g.Mul(x, p["grad_scale"])),
    "cross_entropy": graph(_cross_entropy, path="onnx.SoftmaxCrossEntropyLoss"),
    "nll_loss": graph(_nll, path="onnx.NegativeLogLikelihoodLoss"),
    "multi_margin_loss": _loss(_multi_margin),
    "multilabel_soft_margin_loss": _loss(_multilabel),
    "cosine_embedding_loss": _loss(_cosine),
    "triplet_margin_loss": _loss(_triplet),
    "random_pdf_normal": _density(_normal),
    "random_pdf_exponential": _density(_exponential),
    "random_pdf_uniform": _density(_uniform),
}
