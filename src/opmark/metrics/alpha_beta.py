"""Latency and bandwidth of a communication operator from its times over sizes: t(S) = alpha + S / beta."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from msgspec import Struct

LEAST_SIZES = 3
"""Through two points goes a line whatever they are."""
OFF = 0.5
"""Beyond this deviation one line does not describe the times, and it is said."""
_BEYOND = 2.0
"""A bandwidth so many times the best measured one is a guess."""
_LOST = 0.1
"""A latency below this part of what the bytes of the smallest message take is lost in it."""
_DECADES = 9
"""How far beyond the sizes alpha x beta is looked for."""
_STEPS = 4
"""Steps of that search a decade: the error over log(alpha x beta) bends slower than that."""
_ROUNDING = 1e-15
"""Rounding error of a logarithm: what is not further off than this is exact."""
_GOLDEN = (math.sqrt(5) - 1) / 2


class Fit(Struct, frozen=True):
    """The line with the least errors in logarithms: a small message counts as much as a large one, and a time that is
    too short by half as much as one that is too long by twice."""

    fixed: float
    """Seconds where the line begins, whether or not the sizes can tell."""
    slope: float
    """Seconds a byte, likewise."""
    smallest: int
    largest: int
    """Sizes."""
    fastest: float
    """The best bandwidth of all sizes."""
    worst: float
    """The largest deviation of the line from a time, relative to that time."""
    worst_at: int
    """The size at which it is."""

    @property
    def alpha(self) -> float | None:
        """Seconds that a message takes whatever its size; None where even the smallest is too large to tell."""
        return None if self.fixed < _LOST * self.slope * self.smallest else self.fixed

    @property
    def beta(self) -> float | None:
        """Bytes a second that are added to them; None where the sizes are too small to tell."""
        return None if self.hardly_grows or self.far_beyond else 1 / self.slope

    @property
    def hardly_grows(self) -> bool:
        """Even of the largest message's time, most is latency: a small error of it is a large one of the rest."""
        return self.fixed > self.slope * self.largest

    @property
    def far_beyond(self) -> bool:
        """No size comes near to the bandwidth of the line."""
        return self.slope * self.fastest * _BEYOND < 1

    @property
    def half_size(self) -> float | None:
        """Bytes of a message that reaches half of beta: alpha x beta."""
        return None if self.alpha is None or self.beta is None else self.alpha * self.beta

    @property
    def off(self) -> bool:
        return self.worst > OFF

    def time(self, size: float) -> float:
        return self.fixed + self.slope * size


class NoFit(Struct, frozen=True):
    reason: str


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Fit | NoFit:
    """Neither of both is ever negative."""
    distinct = len(set(sizes))
    if distinct < LEAST_SIZES:
        return NoFit(f"{distinct} of at least {LEAST_SIZES} sizes")
    if not all(math.isfinite(t) and t > 0 for t in seconds):
        return NoFit("a time is not above 0: too short to be measured")
    fixed, slope = _line(sizes, seconds)
    deviations = [abs(fixed + slope * s - t) / t for s, t in zip(sizes, seconds, strict=True)]
    worst = max(deviations)
    fastest = max(s / t for s, t in zip(sizes, seconds, strict=True))
    return Fit(fixed, slope, min(sizes), max(sizes), fastest, worst, sizes[deviations.index(worst)])


def _line(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """alpha and 1 / beta with the least sum of (log of the line - log of the time)^2.

    The line is slope x (half + S). For a given half = alpha x beta, the best slope is the geometric mean of what each
    time asks for, so that one unknown is left: it is looked for between a line that begins at 0 and a flat one, those
    two included."""

    def slopes(half: float) -> list[float]:
        if math.isinf(half):
            return list(seconds)
        return [t / (half + size) for size, t in zip(sizes, seconds, strict=True)]

    def error(half: float) -> float:
        logs = _logs(slopes(half))
        centre = fmean(logs)
        return math.fsum((one - centre) ** 2 for one in logs)

    low, high = math.log(min(sizes)) - _DECADES * math.log(10), math.log(max(sizes)) + _DECADES * math.log(10)
    between = math.exp(_least(lambda place: error(math.exp(place)), low, high))
    least = error(between) * (1 + 1e-9) + len(sizes) * _ROUNDING**2
    half = next((end for end in (math.inf, 0.0) if error(end) <= least), between)
    best = slopes(half)
    scale = best[0] * math.exp(fmean(_logs(best)))
    return (scale, 0.0) if math.isinf(half) else (scale * half, scale)


def _logs(values: Sequence[float]) -> list[float]:
    """Over the first: small where they are alike, and so without a loss of digits."""
    return [math.log(value / values[0]) for value in values]


def _least(error: Callable[[float], float], low: float, high: float) -> float:
    """Where the error is least: the best of a grid, and from there by golden sections."""
    steps = math.ceil((high - low) / math.log(10) * _STEPS)
    width = (high - low) / steps
    best = min((low + i * width for i in range(steps + 1)), key=error)
    left, right = best - width, best + width
    inner = [right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)]
    errors = [error(place) for place in inner]
    while right - left > 1e-13 * max(1.0, abs(best)):
        if errors[0] <= errors[1]:
            right, inner = inner[1], [inner[1] - _GOLDEN * (inner[1] - left), inner[0]]
            errors = [error(inner[0]), errors[0]]
        else:
            left, inner = inner[0], [inner[1], inner[0] + _GOLDEN * (right - inner[0])]
            errors = [errors[1], error(inner[1])]
    return (left + right) / 2
