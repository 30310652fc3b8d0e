"""Losses that compare two tensors element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls, formula, repeat_block
from opmark.catalogue.operators._builders import torch as in_torch
from opmark.catalogue.operators._elementwise import PRESETS
from opmark.plugin import Implementation, Launch, Operator, Param, ParamRule, Params, Tolerance
from opmark.plugin.param import choice, dtype, flag, real, shape
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import sizeof

# No float16: the gradient of a mean over n elements is about 1 / n, which is 0 in float16 from a few million elements
# on. Automatic mixed precision computes losses in float32 for that reason.
DTYPES = ("float64", "float32", "bfloat16")

REDUCTION = choice("reduction", "how the losses are reduced to a number", ("none", "mean", "sum"), "mean")

Shape = tuple[int, ...]


def reduce_losses(p: Params, losses: Any) -> Any:
    if p["reduction"] == "none":
        return losses
    total = losses.sum()
    return np.asarray(total / losses.size if p["reduction"] == "mean" else total)


def outputs(p: Params, losses: int) -> int:
    return losses if p["reduction"] == "none" else 1


def loss_cost(p: Params, inputs: dict[str, TensorSpec], losses: int, flops: int) -> Cost:
    """Return the cost: every input is read, the reduced result is written. The reduction is one addition per loss."""
    total = flops + (0 if p["reduction"] == "none" else losses)
    return Cost(total, sum(spec.nbytes for spec in inputs.values()), outputs(p, losses) * sizeof(p["dtype"]))


def loss_backward(
    p: Params, inputs: dict[str, TensorSpec], gradients: tuple[str, ...], losses: int, flops: int
) -> Cost:
    """Return the backward cost: inputs and incoming gradients are read, a gradient per named input is written."""
    read = sum(spec.nbytes for spec in inputs.values()) + outputs(p, losses) * sizeof(p["dtype"])
    return Cost(flops, read, sum(inputs[name].nbytes for name in gradients))


def between_kinks(shape: Shape, dtype: str, low: float, high: float) -> TensorSpec:
    """Return values whose fraction, counted in quarters, lies between `low` and `high`.

    Two inputs with fractions of 0.1 to 0.4 and of 0.6 to 0.9 never differ by a multiple of 1/4, and neither is such a
    multiple: a loss with a kink at 0, 1/2 or 1 is smooth at all of them, on both sides of the kink.
    """

    def draw(generator: Any, n: int) -> Any:
        return (generator.integers(-8, 8, n) + generator.uniform(low, high, n)) / 4

    return TensorSpec(shape, dtype, -2.0, 2.0, repeat_block(shape, dtype, draw))


def lower(shape: Shape, dtype: str) -> TensorSpec:
    return between_kinks(shape, dtype, 0.1, 0.4)


def upper(shape: Shape, dtype: str) -> TensorSpec:
    return between_kinks(shape, dtype, 0.6, 0.9)


def signs(shape: Shape, dtype: str) -> TensorSpec:
    """Return labels of two classes, -1 or 1."""
    return TensorSpec(shape, dtype, -1.0, 1.0, repeat_block(shape, dtype, lambda g, n: g.choice((-1.0, 1.0), n)))


def uniform_between(low: float, high: float) -> Callable[[Shape, str], TensorSpec]:
    return lambda shape, dtype: TensorSpec(shape, dtype, low, high)


SHAPE = shape("shape", "shape of predictions and targets")
Spec = Callable[[tuple[int, ...], str], TensorSpec]


def loss(
    name: str,
    summary: str,
    losses: Callable[..., Any],
    torch: str | Implementation,
    specs: Mapping[str, Spec],
    *,
    flops: int,
    backward_flops: int,
    gradients: Sequence[str] = ("x",),
    params: Sequence[Param] = (),
    reduction: Param = REDUCTION,
    reduce: Callable[[Params, Any], Any] = reduce_losses,
    aliases: Sequence[str] = (),
    **more: Any,
) -> Operator:
    """Make a loss. `losses(p, *inputs)` returns one loss per element, which is reduced. Torch gets parameters by
    name."""

    def reference(p: Params, **tensors: Any) -> Any:
        return reduce(p, losses(p, *tensors.values()))

    def inputs(p: Params) -> dict[str, TensorSpec]:
        return {name: spec(tuple(p["shape"]), p["dtype"]) for name, spec in specs.items()}

    named = {param.name: param.name for param in (reduction, *params)}
    called = calls(torch, *specs, fixed=None, **named) if isinstance(torch, str) else torch
    return Operator(
        name=name,
        summary=summary,
        category="loss",
        params=(SHAPE, *params, reduction, dtype(*DTYPES)),
        inputs=inputs,
        cost=lambda p: loss_cost(p, inputs(p), prod(p["shape"]), flops * prod(p["shape"])),
        backward_cost=lambda p: loss_backward(
            p, inputs(p), tuple(gradients), prod(p["shape"]), backward_flops * prod(p["shape"])
        ),
        reference=reference,
        presets=PRESETS,
        gradients=tuple(gradients),
        implementations=(formula(reference), called),
        aliases=tuple(aliases),
        **more,
    )


PAIR: Mapping[str, Spec] = {"x": lower, "target": upper}


def _smooth_l1(p: Params, x: Any, target: Any) -> Any:
    distance = np.abs(x - target)
    return np.where(distance < p["beta"], np.square(distance) / 2 / p["beta"], distance - p["beta"] / 2)


def _smooth_l1_of_one(p: Params, x: Any) -> Any:
    return _smooth_l1({"beta": p["sigma"] ** -2}, x, 0)


def _huber(p: Params, x: Any, target: Any) -> Any:
    distance, delta = np.abs(x - target), p["delta"]
    return np.where(distance < delta, np.square(distance) / 2, delta * (distance - delta / 2))


def _bce(p: Params, x: Any, target: Any) -> Any:
    return -(target * np.log(x) + (1 - target) * np.log1p(-x))


def _bce_with_logits(p: Params, x: Any, target: Any) -> Any:
    return np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))


def _kl_div(p: Params, x: Any, target: Any) -> Any:
    return target * (np.log(target) - x)


def _reduce_kl(p: Params, losses: Any) -> Any:
    batch = p["reduction"] == "batchmean"
    return np.asarray(losses.sum() / len(losses)) if batch else reduce_losses(p, losses)


def _poisson_nll(p: Params, x: Any, target: Any) -> Any:
    return np.exp(x) - target * x if p["log_input"] else x - target * np.log(x + 1e-8)


def _gaussian_nll(p: Params, x: Any, target: Any, var: Any) -> Any:
    return (np.log(var) + np.square(x - target) / var) / 2


def _hinge(p: Params, x: Any, target: Any) -> Any:
    return np.maximum(0, p["margin"] - x * target)


def _reduce_in_torch(build: Callable[..., Launch]) -> Implementation:
    """Make an implementation for losses without a torch function: the losses, then the reduction."""

    def build_and_reduce(p: Params, **tensors: Any) -> Launch:
        losses = build(p, **tensors)
        if p["reduction"] == "none":
            return losses
        return (lambda: losses().mean()) if p["reduction"] == "mean" else (lambda: losses().sum())

    return in_torch(build_and_reduce)


def _torch_hinge(p: Params, x: Any, target: Any) -> Launch:
    import torch

    return lambda: torch.relu(p["margin"] - x * target)


def _torch_smooth_l1_of_one(p: Params, x: Any) -> Launch:
    import torch

    target, beta = torch.zeros_like(x), p["sigma"] ** -2
    return lambda: torch.nn.functional.smooth_l1_loss(x, target, reduction="none", beta=beta)


def _torch_scaled(p: Params, x: Any) -> Launch:
    return lambda: x * p["grad_scale"]


def _hinge_embedding(p: Params, x: Any, target: Any) -> Any:
    return np.where(target > 0, x, np.maximum(0, p["margin"] - x))


MARGIN = real("margin", "distance beyond which the loss is 0", 1.0)
FUNCTIONAL = "torch.nn.functional"

OPERATORS = (
    loss(
        "l1_loss", "|x - target|", lambda p, x, target: np.abs(x - target), f"{FUNCTIONAL}.l1_loss", PAIR,
        flops=2, backward_flops=2, aliases=("L1Loss", "mae_loss"),
    ),
    loss(
        "mse_loss", "(x - target)²", lambda p, x, target: np.square(x - target), f"{FUNCTIONAL}.mse_loss", PAIR,
        flops=2, backward_flops=3, aliases=("l2_loss", "L2Loss", "MSELoss"),
    ),
    loss(
        "smooth_l1_loss", "|x - target|, rounded off to a parabola within beta", _smooth_l1,
        f"{FUNCTIONAL}.smooth_l1_loss", PAIR,
        params=(real("beta", "where the parabola ends", 1.0),),
        rules=(ParamRule("beta", "be above 0 (got {beta})", lambda p: p["beta"] > 0),),
        flops=4, backward_flops=3, aliases=("SmoothL1Loss",),
    ),
    loss(
        "smooth_l1", "|x|, rounded off to a parabola within 1 / sigma²; x is already a difference",
        _smooth_l1_of_one, _reduce_in_torch(_torch_smooth_l1_of_one), {"x": lower},
        params=(real("sigma", "the larger, the narrower the parabola", 1.0),),
        rules=(ParamRule("sigma", "be above 0 (got {sigma})", lambda p: p["sigma"] > 0),),
        # MXNet's operator, which does not reduce.
        reduction=replace(REDUCTION, default="none"), flops=3, backward_flops=2,
    ),
    loss(
        "huber_loss", "half the square of x - target within delta, a straight line beyond", _huber,
        f"{FUNCTIONAL}.huber_loss", PAIR,
        params=(real("delta", "where the parabola ends", 1.0),),
        rules=(ParamRule("delta", "be above 0 (got {delta})", lambda p: p["delta"] > 0),),
        flops=4, backward_flops=3, aliases=("HuberLoss",),
    ),
    loss(
        "bce_loss", "binary cross entropy of probabilities", _bce, f"{FUNCTIONAL}.binary_cross_entropy",
        {"x": uniform_between(0.0625, 0.9375), "target": uniform_between(0.0, 1.0)},
        flops=8, backward_flops=5, aliases=("binary_cross_entropy", "BCELoss"),
    ),
    loss(
        "bce_with_logits", "binary cross entropy of logits: their sigmoid is the probability", _bce_with_logits,
        f"{FUNCTIONAL}.binary_cross_entropy_with_logits",
        {"x": uniform_between(-4.0, 4.0), "target": uniform_between(0.0, 1.0)},
        flops=6, backward_flops=5,
        aliases=("binary_cross_entropy_with_logits", "BCEWithLogitsLoss", "SigmoidBinaryCrossEntropyLoss",
                 "SigmoidBCELoss"),
    ),
    loss(
        "kl_div", "target (log target - x), where x is a logarithm of probabilities", _kl_div, f"{FUNCTIONAL}.kl_div",
        {"x": uniform_between(-4.0, -0.125), "target": uniform_between(0.0625, 1.0)},
        # Torch warns about a plain mean, since the divergence is a sum over classes.
        reduction=choice("reduction", "how the losses are reduced", ("none", "batchmean", "sum"), "batchmean"),
        reduce=_reduce_kl, flops=3, backward_flops=2, aliases=("KLDivLoss", "kl_div_loss"),
    ),
    loss(
        "poisson_nll_loss", "negative logarithm of the Poisson probability of a count", _poisson_nll,
        f"{FUNCTIONAL}.poisson_nll_loss", {"x": uniform_between(0.125, 2.0), "target": uniform_between(0.0, 4.0)},
        params=(flag("log_input", "x is the logarithm of the rate", default=True),),
        flops=3, backward_flops=3, aliases=("PoissonNLLLoss",),
    ),
    loss(
        "gaussian_nll_loss", "negative logarithm of the normal density with variance `var`", _gaussian_nll,
        f"{FUNCTIONAL}.gaussian_nll_loss",
        {"x": uniform_between(-1.0, 1.0), "target": uniform_between(-1.0, 1.0), "var": uniform_between(0.5, 2.0)},
        # The gradient of the variance is a difference of terms that may nearly cancel.
        tolerance=Tolerance(gradient_factor=2.0),
        flops=6, backward_flops=8, gradients=("x", "var"), aliases=("GaussianNLLLoss",),
    ),
    loss(
        "soft_margin_loss", "log(1 + exp(-target x)), target -1 or 1",
        lambda p, x, target: np.log1p(np.exp(-target * x)), f"{FUNCTIONAL}.soft_margin_loss",
        {"x": uniform_between(-4.0, 4.0), "target": signs},
        flops=4, backward_flops=5, aliases=("SoftMarginLoss", "LogisticLoss"),
    ),
    loss(
        "hinge_loss", "max(0, margin - target x), target -1 or 1", _hinge, _reduce_in_torch(_torch_hinge),
        {"x": lower, "target": signs}, params=(MARGIN,),
        flops=2, backward_flops=2, aliases=("hinge", "HingeLoss"),
    ),
    loss(
        "hinge_embedding_loss", "x where target is 1, max(0, margin - x) where it is -1", _hinge_embedding,
        f"{FUNCTIONAL}.hinge_embedding_loss", {"x": lower, "target": signs}, params=(MARGIN,),
        flops=1, backward_flops=1, aliases=("HingeEmbeddingLoss",),
    ),
    loss(
        "margin_ranking_loss", "max(0, margin - target (x - other)), target -1 or 1",
        lambda p, x, other, target: np.maximum(0, p["margin"] - target * (x - other)),
        f"{FUNCTIONAL}.margin_ranking_loss", {"x": lower, "other": upper, "target": signs},
        params=(real("margin", "margin by which the right one has to be larger", 0.0),),
        flops=3, backward_flops=2, gradients=("x", "other"), aliases=("MarginRankingLoss",),
    ),
    loss(
        "scaled_loss", "x taken as a loss: its gradient is grad_scale", lambda p, x: p["grad_scale"] * x,
        _reduce_in_torch(_torch_scaled), {"x": uniform_between(0.5, 1.5)},
        params=(real("grad_scale", "factor of the loss, and so of the gradient", 1.0),),
        flops=1, backward_flops=1, aliases=("MakeLoss",),
    ),
)  # fmt: skip
