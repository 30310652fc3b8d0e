"""What can be compared of values that every call draws anew: their distribution.

Each value is put through the distribution function that it should come from. If it does, the result is uniform between
0 and 1, whatever the distribution was, so one yardstick serves all of them. Chance moves a share or a mean by a few of
its standard errors: within 6 of them (once in 500 million) it counts as what it should be, beyond them as what it is.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from opmark.operators import _numpy as np

ERRORS = 6.0
_LEVELS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)


def expected_uniform() -> Any:
    """What `uniformity` gives for values that are what they should be."""
    return np.array([*_LEVELS, 0.5, 0.25, 0.5])


def uniformity(places: Any) -> Any:
    """Share of values below each level, their mean, their mean distance from the middle, and how often one is on the
    same side of the middle as the next, which a pattern changes."""
    flat = places.reshape(-1)
    n = flat.size
    shares = [snapped(float((flat < level).mean()), level, share_error(level, n)) for level in _LEVELS]
    mean = snapped(float(flat.mean()), 0.5, 1 / sqrt(12 * n))
    spread = snapped(float(np.abs(flat - 0.5).mean()), 0.25, 1 / sqrt(48 * n))
    return np.array([*shares, mean, spread, alternation(flat < 0.5, 0.5)])


def alternation(marks: Any, probability: float) -> float:
    """How often neighbours are alike; half the time for independent ones, if marks are that probable."""
    flat = marks.reshape(-1)
    alike = probability**2 + (1 - probability) ** 2
    if flat.size < 2:
        return alike
    # Pairs that share a value vary a little more than independent ones.
    return snapped(float((flat[1:] == flat[:-1]).mean()), alike, 2 * share_error(alike, flat.size - 1))


def share_error(probability: float, n: int) -> float:
    """The standard error of a share; a little more for a few rare values, whose number is far from normal."""
    return sqrt(probability * (1 - probability) / n) + 1 / n


def snapped(found: float, expected: float, error: float) -> float:
    return expected if abs(found - expected) <= ERRORS * error else found


def refuse_outside(values: Any, shape: tuple[int, ...], low: Any, high: Any, slack: float) -> None:
    """ValueError, which makes a result wrong, for what no chance explains. `slack` allows for rounding."""
    if values.shape != shape:
        raise ValueError(f"shape {values.shape}, expected {shape}")
    if not np.isfinite(values).all():
        raise ValueError("not finite everywhere")
    below, above = values < low - slack * np.abs(low), values > high + slack * np.abs(high)
    if below.any() or above.any():
        raise ValueError(f"{int(below.sum() + above.sum())} of {values.size} values cannot be drawn")


def between(below: Any, upto: Any) -> Any:
    """A place for values that have a probability of their own: anywhere in the step of the distribution function."""
    return below + generator(1).random(below.shape) * (upto - below)


def generator(use: int = 0) -> Any:
    """NumPy's, with a seed far from those of inputs: what is drawn must not go with them."""
    return np.random.default_rng((0x6F706D, use))
