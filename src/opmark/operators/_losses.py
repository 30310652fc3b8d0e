"""Common parts of losses: data away from kinks, the reduction at the end, and the cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._repeated import repeat_block
from opmark.schema import Cost, Params, TensorSpec
from opmark.schema.dtype import sizeof
from opmark.schema.param import choice

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
