"""Checks gradients against the reference, for any operator, without a formula for its gradient.

The change of the reference along a random direction v is known from a few more evaluations of it (a central difference
in float64); it must equal the gradient times v. Each element of the direction is +1 or -1, so every element of the
gradient counts; a single wrong one shows as long as it stands out from the rounding of all of them together, which in
16-bit types it may not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opmark.errors import WrongResult
from opmark.schema.operator import growth
from opmark.verify.compare import Errors

_DIRECTIONS = 4
_STEP = 2e-5
_FIVE_POINTS = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))
EVALUATIONS = _DIRECTIONS * len(_FIVE_POINTS)
"""Number of evaluations of the reference for the gradient of one input."""
# Error of the difference itself: its truncation and rounding, relative to the terms that it adds up.
_OWN_ERROR = 1e-7

Reference = Callable[[Mapping[str, Any]], Sequence[Any]]
Direction = Callable[[str, np.random.Generator, Any], Any]


def any_direction(name: str, generator: np.random.Generator, array: Any) -> Any:
    return generator.choice((-1.0, 1.0), size=array.shape)


def check_gradients(
    reference: Reference,
    inputs: Mapping[str, Any],
    gradients: Mapping[str, Any],
    seeds: Sequence[Any],
    relative: float,
    direction: Direction = any_direction,
) -> Errors:
    """`seeds` are the gradients of the outputs, None for an output that has none."""
    generator = np.random.default_rng(0)
    found = _Slopes(reference, inputs, seeds)
    worst = Errors(0.0, 0.0)
    for name, gradient in gradients.items():
        if gradient.shape != inputs[name].shape:
            raise WrongResult(f"gradient of `{name}` has shape {gradient.shape}, expected {inputs[name].shape}")
        if not np.isfinite(gradient).all():
            raise WrongResult(f"gradient of `{name}` is not finite everywhere")
        # An element of the gradient adds up as many terms as there are outputs to each of them, and frameworks do
        # that in the type that they store more often than forwards.
        allowed = (relative + _OWN_ERROR) * growth(4 * found.outputs / max(1, gradient.size))
        for _ in range(_DIRECTIONS):
            way = direction(name, generator, inputs[name])
            terms = gradient * way
            scale = max(float(np.sqrt(np.square(terms).sum())), found.magnitude)
            worst = _judge(name, float(terms.sum()), found.along(name, way), scale, allowed, worst)
    return worst


class _Slopes:
    """How the reference, weighted by the seeds, changes along a direction."""

    def __init__(self, reference: Reference, inputs: Mapping[str, Any], seeds: Sequence[Any]) -> None:
        self._reference = reference
        self._inputs = inputs
        self._seeds = seeds
        weighted = self._weighted(inputs)
        self.outputs = sum(values.size for values in weighted)
        # Where a gradient is zero, what is left of it is the rounding of terms of this size.
        self.magnitude = float(np.sqrt(sum(np.square(values).sum() for values in weighted)))

    def along(self, name: str, way: Any) -> float:
        """The slope by the five-point rule, whose own error falls with the fourth power of the step."""
        total = 0.0
        for at, weight in _FIVE_POINTS:
            moved = {**self._inputs, name: self._inputs[name] + at * _STEP * way}
            total += weight * float(sum(values.sum() for values in self._weighted(moved)))
        return total / _STEP

    def _weighted(self, inputs: Mapping[str, Any]) -> list[Any]:
        outputs = self._reference(inputs)
        return [out * seed for out, seed in zip(outputs, self._seeds, strict=False) if seed is not None]


def _judge(name: str, found: float, expected: float, scale: float, allowed: float, worst: Errors) -> Errors:
    error = abs(found - expected)
    bound = allowed * max(scale, abs(expected))
    if not error <= bound:
        raise WrongResult(
            f"gradient of `{name}`: its sum along a random direction is {found:.6g}, the reference changes by "
            f"{expected:.6g} a step; off by {error:.3g}, allowed {bound:.3g}"
        )
    return Errors(max(worst.max_abs, error), max(worst.max_rel, error / scale if scale else 0.0))
