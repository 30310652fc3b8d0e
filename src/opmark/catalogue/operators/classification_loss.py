"""Losses of rows of scores against the right class, and of pairs of vectors: cross_entropy, nll_loss, margins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import expected_distinct
from opmark.catalogue.operators._builders import calls, formula, repeat_block
from opmark.catalogue.operators._builders import torch as in_torch
from opmark.catalogue.operators.loss import (
    DTYPES,
    REDUCTION,
    loss_backward,
    loss_cost,
    outputs,
    reduce_losses,
    signs,
    uniform_between,
)
from opmark.plugin import Launch, Operator, Param, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, real, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import sizeof

FUNCTIONAL = "torch.nn.functional"
BATCH = size("batch", "rows; each has its own loss")
CLASSES = size("classes", "scores of a row")
DIM = size("dim", "elements of a row")
CLASS_PRESETS = {
    "small": {"batch": 64, "classes": 256},
    "typical": {"batch": 1024, "classes": 1000},
    "large": {"batch": 4096, "classes": 32000},
}
VECTOR_PRESETS = {
    "small": {"batch": 64, "dim": 256},
    "typical": {"batch": 2048, "dim": 512},
    "large": {"batch": 16384, "dim": 1024},
}

Specs = Callable[[Params], dict[str, TensorSpec]]


def _row_loss(
    name: str,
    summary: str,
    losses: Callable[..., Any],
    torch: str,
    inputs: Specs,
    width: Param,
    *,
    flops: int,
    backward_flops: int,
    gradients: Sequence[str] = ("x",),
    params: Sequence[Param] = (),
    dtypes: Sequence[str] = DTYPES,
    tolerance: Tolerance | None = None,
    aliases: Sequence[str] = (),
    **more: Any,
) -> Operator:
    """Make a loss. `losses(p, *inputs)` returns one loss per row of data; flops are counted per element."""

    def reference(p: Params, **tensors: Any) -> Any:
        return reduce_losses(p, losses(p, *tensors.values()))

    def elements(p: Params) -> int:
        return int(p["batch"] * p[width.name])

    named = {param.name: param.name for param in (REDUCTION, *params)}
    given = {
        "cost": lambda p: loss_cost(p, inputs(p), p["batch"], flops * elements(p)),
        "backward_cost": lambda p: loss_backward(
            p, inputs(p), tuple(gradients), p["batch"], backward_flops * elements(p)
        ),
        "presets": CLASS_PRESETS if width is CLASSES else VECTOR_PRESETS,
    }
    return Operator(
        name=name,
        summary=summary,
        category="loss",
        params=(BATCH, width, *params, REDUCTION, dtype(*dtypes)),
        inputs=inputs,
        reference=reference,
        gradients=tuple(gradients),
        implementations=(formula(reference), calls(torch, *inputs(_ONE), fixed=None, **named)),
        tolerance=tolerance or Tolerance(terms=lambda p: int(p[width.name])),
        aliases=tuple(aliases),
        **{**given, **more},
    )


# Parameters that are used to find out the names of the inputs.
_ONE: Mapping[str, Any] = {"batch": 1, "classes": 1, "dim": 1, "dtype": "float32"}


def _scores(make: Callable[[tuple[int, ...], str], TensorSpec]) -> Specs:
    """Return the scores of each class, and the right class."""
    return lambda p: {
        "x": make((p["batch"], p["classes"]), p["dtype"]),
        "target": TensorSpec((p["batch"],), "int64", 0, p["classes"]),
    }


def _at(x: Any, target: Any) -> Any:
    return np.take_along_axis(x, target[:, None], axis=1)[:, 0]


def _cross_entropy(p: Params, x: Any, target: Any) -> Any:
    highest = x.max(axis=1, keepdims=True)
    total = np.log(np.exp(x - highest).sum(axis=1)) + highest[:, 0]
    smooth = p["label_smoothing"]
    return total - (1 - smooth) * _at(x, target) - smooth * x.mean(axis=1)


def _step_spec(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    """Return multiples of 0.4 plus at most 0.1: two of them never differ by 1, where the loss has its kink."""

    def draw(generator: Any, n: int) -> Any:
        return 0.4 * generator.integers(-4, 5, n) + generator.uniform(0.0, 0.1, n)

    return TensorSpec(shape, dtype, -2.0, 2.0, repeat_block(shape, dtype, draw))


def _multi_margin(p: Params, x: Any, target: Any) -> Any:
    right = _at(x, target)[:, None]
    lost = np.maximum(0, p["margin"] - right + x)
    wrong = np.arange(x.shape[1]) != target[:, None]
    return np.where(wrong, lost, 0).sum(axis=1) / x.shape[1]


def _multilabel(p: Params, x: Any, target: Any) -> Any:
    return (np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))).mean(axis=1)


def _nll_cost(p: Params) -> Cost:
    """Only one score per row is read."""
    losses = 0 if p["reduction"] == "none" else p["batch"]
    written = 1 if losses else p["batch"]
    return Cost(p["batch"] + losses, p["batch"] * (sizeof(p["dtype"]) + sizeof("int64")), written * sizeof(p["dtype"]))


def _nll_backward(p: Params) -> Cost:
    """The gradient is zero but for one value per row."""
    incoming = p["batch"] if p["reduction"] == "none" else 1
    nbytes = sizeof(p["dtype"])
    read = p["batch"] * sizeof("int64") + incoming * nbytes
    return Cost(p["batch"], read, p["batch"] * p["classes"] * nbytes)


def _pair(p: Params) -> dict[str, TensorSpec]:
    """Return vectors of mostly positive elements, about 60 degrees apart: far from 90 degrees, where the loss of unlike
    vectors has its kink, and from 0 degrees, where the loss of like vectors vanishes."""
    full = (p["batch"], p["dim"])
    row = uniform_between(-0.25, 1.0)
    return {"x": row(full, p["dtype"]), "other": row(full, p["dtype"]), "target": signs((p["batch"],), p["dtype"])}


def _cosine(p: Params, x: Any, other: Any, target: Any) -> Any:
    lengths = np.sqrt((np.square(x).sum(axis=1) + 1e-12) * (np.square(other).sum(axis=1) + 1e-12))  # as in torch
    cosine = (x * other).sum(axis=1) / lengths
    return np.where(target > 0, 1 - cosine, np.maximum(0, cosine - p["margin"]))


def _triplet_inputs(p: Params) -> dict[str, TensorSpec]:
    """Return positives that are far from the anchors, so that every row has a loss: a row near the kink at 0 could be
    on either side of it after rounding."""
    full = (p["batch"], p["dim"])
    near, aside = uniform_between(-0.5, 0.5)(full, p["dtype"]), uniform_between(0.5, 1.5)(full, p["dtype"])
    return {"anchor": near, "positive": aside, "negative": near}


def _triplet(p: Params, anchor: Any, positive: Any, negative: Any) -> Any:
    def distance(one: Any, other: Any) -> Any:
        return np.sqrt(np.square(one - other + 1e-6).sum(axis=1))  # torch adds this too, to avoid the root of zero

    return np.maximum(0, distance(anchor, positive) - distance(anchor, negative) + p["margin"])


MARGIN = real("margin", "margin by which the right score has to be larger", 1.0)

CLASS_LOSS_OPERATORS = (
    _row_loss(
        "cross_entropy", "negative logarithm of the right class's softmax", _cross_entropy,
        f"{FUNCTIONAL}.cross_entropy", _scores(uniform_between(-4.0, 4.0)), CLASSES,
        params=(real("label_smoothing", "probability that is distributed over all classes", 0.0, kind="amount"),),
        rules=(
            ParamRule("label_smoothing", "be at most 1 (got {label_smoothing})", lambda p: p["label_smoothing"] <= 1),
        ),
        # Difference, exponential, sum; backwards also the quotient.
        flops=3, backward_flops=4,
        aliases=("softmax_cross_entropy", "SoftmaxCrossEntropyLoss", "SoftmaxCELoss", "CrossEntropyLoss"),
    ),
    _row_loss(
        "nll_loss", "minus the score of the right class", lambda p, x, target: -_at(x, target),
        f"{FUNCTIONAL}.nll_loss", _scores(uniform_between(-4.0, -0.125)), CLASSES,
        flops=1, backward_flops=1, cost=_nll_cost, backward_cost=_nll_backward, partial=True,
        tolerance=Tolerance(), aliases=("NLLLoss",),
    ),
    _row_loss(
        "multi_margin_loss", "mean of max(0, margin - right score + score) over the classes", _multi_margin,
        f"{FUNCTIONAL}.multi_margin_loss", _scores(_step_spec), CLASSES, params=(MARGIN,),
        # Torch has it only in these types on the CPU.
        dtypes=("float64", "float32"), flops=3, backward_flops=3, aliases=("MultiMarginLoss",),
    ),
    _row_loss(
        "multilabel_soft_margin_loss", "mean over the classes of the binary cross entropy of their logits", _multilabel,
        f"{FUNCTIONAL}.multilabel_soft_margin_loss",
        lambda p: {"x": uniform_between(-4.0, 4.0)((p["batch"], p["classes"]), p["dtype"]),
                   "target": uniform_between(0.0, 1.0)((p["batch"], p["classes"]), p["dtype"])},
        CLASSES, flops=7, backward_flops=6, aliases=("MultiLabelSoftMarginLoss",),
    ),
    _row_loss(
        "cosine_embedding_loss", "1 - cosine of like vectors (target 1), max(0, cosine - margin) of others (-1)",
        _cosine, f"{FUNCTIONAL}.cosine_embedding_loss", _pair, DIM,
        params=(real("margin", "cosine that unlike vectors may have", 0.0),),
        # Cosines are about 0.5, and gradients are differences of terms of that size.
        tolerance=Tolerance(terms=lambda p: int(p["dim"]), gradient_factor=2.0),
        flops=6, backward_flops=8, gradients=("x", "other"), aliases=("CosineEmbeddingLoss",),
    ),
    _row_loss(
        "triplet_margin_loss", "max(0, distance to the positive - distance to the negative + margin)", _triplet,
        f"{FUNCTIONAL}.triplet_margin_loss", _triplet_inputs, DIM,
        params=(real("margin", "margin by which the negative has to be farther away", 1.0),),
        flops=8, backward_flops=6, gradients=("anchor", "positive", "negative"),
        aliases=("TripletMarginLoss", "TripletLoss"),
    ),
)  # fmt: skip


# ctc_loss: the negative log-likelihood of a sequence of labels over all its alignments in time.


def _inputs(p: Params) -> dict[str, TensorSpec]:
    full = (p["steps"], p["batch"], p["classes"])

    def log_probabilities(generator: Any) -> Any:
        scores = generator.uniform(-2.0, 2.0, full)
        return scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))

    return {
        "log_probs": TensorSpec(full, p["dtype"], -30.0, 0.0, log_probabilities),
        "targets": TensorSpec((p["batch"], p["labels"]), "int64", 1, p["classes"]),
    }


def _with_blanks(targets: Any) -> Any:
    """Insert a blank (class 0) before, between and after the labels."""
    extended = np.zeros((len(targets), 2 * targets.shape[1] + 1), np.int64)
    extended[:, 1::2] = targets
    return extended


def _reference(p: Params, log_probs: Any, targets: Any) -> Any:
    """Compute the forward algorithm: the probability of being at each place after each step."""
    extended = _with_blanks(targets)
    emitted = np.take_along_axis(log_probs, np.broadcast_to(extended, (p["steps"], *extended.shape)), axis=2)
    skips = np.zeros(extended.shape, bool)
    skips[:, 2:] = (extended[:, 2:] != 0) & (extended[:, 2:] != extended[:, :-2])
    reached = np.full(extended.shape, -np.inf, log_probs.dtype)
    reached[:, :2] = emitted[0, :, :2]
    for now in emitted[1:]:
        before = np.pad(reached, ((0, 0), (2, 0)), constant_values=-np.inf)
        moved = np.logaddexp(reached, before[:, 1:-1])
        reached = np.logaddexp(moved, np.where(skips, before[:, :-2], -np.inf)) + now
    losses = -np.logaddexp(reached[:, -1], reached[:, -2])
    if p["reduction"] == "mean":  # divided by the number of labels first, as in torch
        return np.asarray((losses / p["labels"]).mean())
    return losses if p["reduction"] == "none" else np.asarray(losses.sum())


def _torch(p: Params, log_probs: Any, targets: Any) -> Launch:
    import torch

    # torch reads the lengths on the host, wherever the data is.
    lengths = (torch.full((p["batch"],), p[n], dtype=torch.int64, device="cpu") for n in ("steps", "labels"))
    return partial(torch.nn.functional.ctc_loss, log_probs, targets, *lengths, reduction=p["reduction"])


def _places(p: Params) -> int:
    return int(p["steps"] * p["batch"] * (2 * p["labels"] + 1))


def _read(p: Params) -> int:
    """Count the labels, and at each step the scores of the blank and of the labels that occur: no others matter."""
    scores = p["steps"] * p["batch"] * (1 + expected_distinct(p["labels"], p["classes"] - 1))
    return int(round(scores) * sizeof(p["dtype"]) + p["batch"] * p["labels"] * sizeof("int64"))


def _cost(p: Params) -> Cost:
    """Count, for each place and step, the logarithm of a sum of three exponentials, and the score: 3 differences,
    3 exponentials, 2 sums, a logarithm and 2 sums."""
    return Cost(11 * _places(p), _read(p), outputs(p, p["batch"]) * sizeof(p["dtype"]))


def _backward_cost(p: Params) -> Cost:
    """Count the backward algorithm, and for each place and step its probability: 3 sums, an exponential, a product with
    the incoming gradient, and a sum into the gradient of its class. The gradient of all other classes is zero."""
    scores = p["steps"] * p["batch"] * p["classes"]
    read = _read(p) + outputs(p, p["batch"]) * sizeof(p["dtype"])
    return Cost(17 * _places(p), read, scores * sizeof(p["dtype"]))


def _sum_preserving(p: Params, name: str, generator: Any, log_probs: Any) -> Any:
    """Return a change that keeps the sum of probabilities at 1: frameworks return the gradient of the scores before
    log_softmax, which agrees with ours only along such a change."""
    way = generator.choice((-1.0, 1.0), size=log_probs.shape)
    return way - (np.exp(log_probs) * way).sum(axis=-1, keepdims=True)


CTC_LOSS = Operator(
    name="ctc_loss",
    summary="connectionist temporal classification: negative log-probability of the labels over all alignments",
    category="loss",
    params=(
        size("steps", "length of the input sequences"),
        size("batch", "sequences"),
        size("classes", "classes at each step; class 0 is the blank"),
        size("labels", "length of the target sequences"),
        REDUCTION,
        dtype("float64", "float32"),
    ),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    reference=_reference,
    tolerance=Tolerance(terms=lambda p: int(p["steps"])),
    presets={
        "small": {"steps": 32, "batch": 8, "classes": 32, "labels": 8},
        "typical": {"steps": 128, "batch": 32, "classes": 100, "labels": 32},
        "large": {"steps": 1024, "batch": 100, "classes": 100, "labels": 100},
    },
    rules=(
        ParamRule("classes", "be at least 2: a blank and a label (got {classes})", lambda p: p["classes"] >= 2),
        ParamRule("steps", "be at least 2 x labels - 1, as equal labels need a blank between them (got {steps})",
             lambda p: p["steps"] >= 2 * p["labels"] - 1),
    ),
    gradients=("log_probs",),
    partial=True,
    direction=_sum_preserving,
    implementations=(formula(_reference), in_torch(_torch, "torch.nn.functional.ctc_loss")),
    aliases=("CTCLoss",),
)  # fmt: skip


OPERATORS = (
    *CLASS_LOSS_OPERATORS,
    CTC_LOSS,
)
