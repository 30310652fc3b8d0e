"""Losses of rows of scores against the right class, and of pairs of vectors: cross_entropy, nll_loss, margins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import calls, formula
from opmark.operators._losses import DTYPES, REDUCTION, loss_backward, loss_cost, reduce_losses, signs, uniform_between
from opmark.operators._repeated import repeat_block
from opmark.schema import Cost, Operator, Param, Params, Rule, TensorSpec, Tolerance
from opmark.schema.dtype import sizeof
from opmark.schema.param import dtype, real, size

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

OPERATORS = (
    _row_loss(
        "cross_entropy", "negative logarithm of the right class's softmax", _cross_entropy,
        f"{FUNCTIONAL}.cross_entropy", _scores(uniform_between(-4.0, 4.0)), CLASSES,
        params=(real("label_smoothing", "probability that is distributed over all classes", 0.0, kind="amount"),),
        rules=(Rule("label_smoothing", "be at most 1 (got {label_smoothing})", lambda p: p["label_smoothing"] <= 1),),
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
        # Cosines are about 0.5, so that the difference from 1 loses a digit, and so do the gradients.
        tolerance=Tolerance(terms=lambda p: int(p["dim"]), factor=2.0),
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
