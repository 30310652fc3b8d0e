"""ctc_loss: the negative log-likelihood of a sequence of labels over all its alignments in time."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula
from opmark.operators._build import torch as in_torch
from opmark.operators._losses import REDUCTION, outputs
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec, Tolerance
from opmark.schema.dtype import sizeof
from opmark.schema.param import dtype, size


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
    scores, labels = p["steps"] * p["batch"] * p["classes"], p["batch"] * p["labels"]
    return int(scores * sizeof(p["dtype"]) + labels * sizeof("int64"))


def _cost(p: Params) -> Cost:
    """Count, for each place and step, the logarithm of a sum of three exponentials, and the score: 3 differences,
    3 exponentials, 2 sums, a logarithm and 2 sums."""
    return Cost(11 * _places(p), _read(p), outputs(p, p["batch"]) * sizeof(p["dtype"]))


def _backward_cost(p: Params) -> Cost:
    """Count the backward algorithm, and an exponential and a difference for every score."""
    scores = p["steps"] * p["batch"] * p["classes"]
    read = _read(p) + outputs(p, p["batch"]) * sizeof(p["dtype"])
    return Cost(11 * _places(p) + 2 * scores, read, scores * sizeof(p["dtype"]))


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
        Rule("classes", "be at least 2: a blank and a label (got {classes})", lambda p: p["classes"] >= 2),
        Rule("steps", "be at least 2 x labels - 1, as equal labels need a blank between them (got {steps})",
             lambda p: p["steps"] >= 2 * p["labels"] - 1),
    ),
    gradients=("log_probs",),
    direction=_sum_preserving,
    implementations=(formula(_reference), in_torch(_torch, "torch.nn.functional.ctc_loss")),
    aliases=("CTCLoss",),
)  # fmt: skip

OPERATORS = (CTC_LOSS,)
