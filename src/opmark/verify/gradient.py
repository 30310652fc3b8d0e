"""Gradients against the reference, for any operator, without a formula for its gradient.

The change of the reference along a random direction v is known from two more evaluations of it (a central difference
in float64); it must equal the gradient times v. Each element of the direction is +1 or -1, so an error in any element
of the gradient shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opmark.errors import WrongResult
from opmark.verify.compare import Errors

_DIRECTIONS = 4
_STEP = 1e-5
# What the central difference itself may be off by: its own truncation and rounding, relative to the terms it adds up.
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
    worst = Errors(0.0, 0.0)
    for name, gradient in gradients.items():
        if gradient.shape != inputs[name].shape:
            raise WrongResult(f"gradient of `{name}` has shape {gradient.shape}, expected {inputs[name].shape}")
        if not np.isfinite(gradient).all():
            raise WrongResult(f"gradient of `{name}` is not finite everywhere")
        for _ in range(_DIRECTIONS):
            way = direction(name, generator, inputs[name])
            terms = gradient * way
            expected = _slope(reference, inputs, name, way, seeds)
            scale = float(np.sqrt(np.square(terms).sum())) + float(np.abs(terms).mean())
            worst = _judge(name, float(terms.sum()), expected, scale, relative, worst)
    return worst


def _slope(reference: Reference, inputs: Mapping[str, Any], name: str, way: Any, seeds: Sequence[Any]) -> float:
    ends = []
    for sign in (1, -1):
        moved = {**inputs, name: inputs[name] + sign * _STEP * way}
        outputs = reference(moved)
        ends.append([float((o * s).sum()) for o, s in zip(outputs, seeds, strict=False) if s is not None])
    return float(sum(high - low for high, low in zip(*ends, strict=True)) / (2 * _STEP))


def _judge(name: str, found: float, expected: float, scale: float, relative: float, worst: Errors) -> Errors:
    error = abs(found - expected)
    bound = (relative + _OWN_ERROR) * max(scale, abs(expected))
    if not error <= bound:
        raise WrongResult(
            f"gradient of `{name}`: its sum along a random direction is {found:.6g}, the reference changes by "
            f"{expected:.6g} a step; off by {error:.3g}, allowed {bound:.3g}"
        )
    return Errors(max(worst.max_abs, error), max(worst.max_rel, error / scale if scale else 0.0))
