"""Compare values that every call draws anew by their distribution.

Each value is put through the distribution function that it should come from. If it does come from it, the result is
uniform between 0 and 1 for every distribution, so one comparison serves all of them. Chance moves a share or a mean by
a few of its standard errors: a statistic within 6 of them (chance exceeds that once in 500 million) is replaced by its
expected value, one beyond them stays as it is.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from opmark.operators import _numpy as np

ERRORS = 6.0
_LEVELS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)


def expected_uniform() -> Any:
    """Return what `uniformity` returns for values of the right distribution."""
    return np.array([*_LEVELS, 0.5, 0.25, 0.5])


def uniformity(places: Any) -> Any:
    """Return the shares of values below each level, the mean, the mean distance from the middle, and how often a value
    is on the same side of the middle as the next one, which shows patterns."""
    flat = places.reshape(-1)
    n = flat.size
    shares = [snap(float((flat < level).mean()), level, share_error(level, n)) for level in _LEVELS]
    mean = snap(float(flat.mean()), 0.5, 1 / sqrt(12 * n))
    spread = snap(float(np.abs(flat - 0.5).mean()), 0.25, 1 / sqrt(48 * n))
    return np.array([*shares, mean, spread, alternation(flat < 0.5, 0.5)])


def alternation(marks: Any, probability: float) -> float:
    """Return how often neighbouring marks are equal, for marks that are true with this probability."""
    flat = marks.reshape(-1)
    alike = probability**2 + (1 - probability) ** 2
    if flat.size < 2:
        return alike
    # Pairs that share a value vary a little more than independent pairs.
    return snap(float((flat[1:] == flat[:-1]).mean()), alike, 2 * share_error(alike, flat.size - 1))


def share_error(probability: float, n: int) -> float:
    """Return the standard error of a share, a little larger because counts of rare values are not normal."""
    return sqrt(probability * (1 - probability) / n) + 1 / n


def snap(found: float, expected: float, error: float) -> float:
    return expected if abs(found - expected) <= ERRORS * error else found


def refuse_outside(values: Any, shape: tuple[int, ...], low: Any, high: Any, slack: float) -> None:
    """Raise ValueError, which makes a result wrong, for values that cannot be drawn. `slack` allows for rounding."""
    if values.shape != shape:
        raise ValueError(f"shape {values.shape}, expected {shape}")
    if not np.isfinite(values).all():
        raise ValueError("not finite everywhere")
    below, above = values < low - slack * np.abs(low), values > high + slack * np.abs(high)
    if below.any() or above.any():
        raise ValueError(f"{int(below.sum() + above.sum())} of {values.size} values cannot be drawn")


def place_in_step(below: Any, upto: Any) -> Any:
    """Return random places in the steps of a discrete distribution function."""
    return below + generator(1).random(below.shape) * (upto - below)


def generator(use: int = 0) -> Any:
    """Return a NumPy generator whose seed differs from those of inputs, so that values do not correlate with them."""
    return np.random.default_rng((0x6F706D, use))
