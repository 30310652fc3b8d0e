"""Check gradients of any operator against the reference, without a formula for the gradient.

The change of the reference along a random direction v follows from a few more evaluations of it (a central difference
in float64); it must equal the gradient times v. Each element of the direction is +1 or -1, so every element of the
gradient counts. A single wrong element is found if it is larger than the rounding errors of all elements together,
which is not always so in 16-bit types.
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
# Error of the difference itself by truncation and rounding, relative to its terms.
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
    """Check gradients and return the largest errors. `seeds` are the gradients of the outputs, None if there is
    none."""
    generator = np.random.default_rng(0)
    found = _Slopes(reference, inputs, seeds)
    worst = Errors(0.0, 0.0)
    for name, gradient in gradients.items():
        if gradient.shape != inputs[name].shape:
            raise WrongResult(f"gradient of `{name}` has shape {gradient.shape}, expected {inputs[name].shape}")
        if not np.isfinite(gradient).all():
            raise WrongResult(f"gradient of `{name}` is not finite everywhere")
        # An element of the gradient is a sum over outputs, and frameworks compute that sum in the stored type more
        # often than in the forward pass.
        allowed = (relative + _OWN_ERROR) * growth(4 * found.outputs / max(1, gradient.size))
        for _ in range(_DIRECTIONS):
            way = direction(name, generator, inputs[name])
            terms = gradient * way
            scale = max(float(np.sqrt(np.square(terms).sum())), found.magnitude)
            worst = _judge(name, float(terms.sum()), found.along(name, way), scale, allowed, worst)
    return worst


class _Slopes:
    """Computes how the reference, weighted by the seeds, changes along a direction."""

    def __init__(self, reference: Reference, inputs: Mapping[str, Any], seeds: Sequence[Any]) -> None:
        self._reference = reference
        self._inputs = inputs
        self._seeds = seeds
        weighted = self._weighted(inputs)
        self.outputs = sum(values.size for values in weighted)
        # A gradient of zero still has the rounding errors of terms of this size.
        self.magnitude = float(np.sqrt(sum(np.square(values).sum() for values in weighted)))

    def along(self, name: str, way: Any) -> float:
        """Return the slope by the five-point rule, whose error falls with the fourth power of the step."""
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
            f"{expected:.6g}; off by {error:.3g}, allowed {bound:.3g}"
        )
    return Errors(max(worst.max_abs, error), max(worst.max_rel, error / scale if scale else 0.0))
