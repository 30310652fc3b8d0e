"""Latency and bandwidth of a communication operator from its times over sizes: t(S) = alpha + S / beta."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

LEAST_SIZES = 3
"""Through two points goes a line whatever they are."""
OFF = 0.5
"""Beyond this deviation one line does not describe the times, and it is said."""


class Fit(Struct, frozen=True):
    """The line with the least relative errors: a small message counts as much as a large one."""

    alpha: float
    """Seconds that a message takes whatever its size."""
    beta: float | None
    """Bytes a second that are added to them; None where the time does not grow with the size."""
    worst: float
    """The largest deviation of the line from a time, relative to that time."""
    worst_at: int
    """The size at which it is."""

    @property
    def half_size(self) -> float | None:
        """Bytes of a message that reaches half of beta: alpha x beta."""
        return None if self.beta is None else self.alpha * self.beta

    @property
    def off(self) -> bool:
        return self.worst > OFF

    def time(self, size: float) -> float:
        return self.alpha + (size / self.beta if self.beta else 0.0)


class NoFit(Struct, frozen=True):
    reason: str


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Fit | NoFit:
    """Weights are 1/t^2; neither of both is ever negative."""
    distinct = len(set(sizes))
    if distinct < LEAST_SIZES:
        return NoFit(f"{distinct} of at least {LEAST_SIZES} sizes")
    if not all(math.isfinite(t) and t > 0 for t in seconds):
        return NoFit("a time is not above 0: too short to be measured")
    alpha, slope = _least_squares([1 / t for t in seconds], [s / t for s, t in zip(sizes, seconds, strict=True)])
    deviations = [abs(alpha + slope * s - t) / t for s, t in zip(sizes, seconds, strict=True)]
    worst = max(deviations)
    return Fit(alpha, 1 / slope if slope > 0 else None, worst, sizes[deviations.index(worst)])


def _least_squares(ones: Sequence[float], grown: Sequence[float]) -> tuple[float, float]:
    """The (a, b) of a x ones + b x grown nearest to 1 everywhere, neither of them below 0.

    With two unknowns the one that would be negative is 0, and the other is best alone."""
    target = [1.0] * len(ones)
    only_a, only_b = (_dot(column, target) / _dot(column, column) for column in (ones, grown))
    # What of the second column, and of the target, the first cannot explain: better conditioned than the squares.
    rest = _without(grown, ones)
    b = _dot(rest, _without(target, ones)) / _dot(rest, rest)
    if b <= 0:
        return only_a, 0.0
    a = _dot(ones, [1.0 - b * g for g in grown]) / _dot(ones, ones)
    return (a, b) if a >= 0 else (0.0, only_b)


def _without(column: Sequence[float], direction: Sequence[float]) -> list[float]:
    part = _dot(column, direction) / _dot(direction, direction)
    return [c - part * d for c, d in zip(column, direction, strict=True)]


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(left, right, strict=True))
