"""Stopping rules, as objects that can be asked with invented numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from opmark.schema import Sampling
from opmark.schema.measurement import Stop
from opmark.stats import median, relative_half_width

# One sample says nothing about noise. A budget is overdrawn for three, unless the calls are very long.
_MIN_SAMPLES = 3
_OVERDRAFT = 10


class WarmUp:
    """Ends the warm-up when the medians of two successive windows agree, not after a fixed count."""

    def __init__(self, rule: Sampling) -> None:
        self._rule = rule
        self._before: float | None = None
        self.settled = False

    def done(self, window: Sequence[float], elapsed: float) -> bool:
        """Whether warming up is over, after a window of samples and so many seconds in all."""
        now = median(window)
        if self._before is not None:
            self.settled = abs(now - self._before) <= self._rule.warmup_agreement * self._before
        self._before = now
        return (self.settled and elapsed >= self._rule.warmup_min) or elapsed >= self._rule.warmup_max


class Enough(Protocol):
    def reached(self, samples: Sequence[float], elapsed: float) -> Stop | None:
        """Why to stop now, or None to go on."""


class Precision:
    """Stops when the interval of the median is narrow, or when the budget is spent."""

    def __init__(self, rule: Sampling) -> None:
        self._rule = rule

    def reached(self, samples: Sequence[float], elapsed: float) -> Stop | None:
        rule = self._rule
        if elapsed >= rule.max_time and (len(samples) >= _MIN_SAMPLES or elapsed >= _OVERDRAFT * rule.max_time):
            return "budget"
        if len(samples) < rule.min_samples or elapsed < rule.min_time:
            return None
        return "precise" if relative_half_width(samples) <= rule.rel_ci else None


class Count:
    """Stops when there are as many samples as asked for, however long that takes."""

    def __init__(self, count: int) -> None:
        self._count = count

    def reached(self, samples: Sequence[float], elapsed: float) -> Stop | None:
        return "count" if len(samples) >= self._count else None
