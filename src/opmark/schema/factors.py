"""What decides a number: the effect of each factor on time and energy, as `opmark factors` finds it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Outcome = Literal["time", "energy", "energy_delay"]
OUTCOMES: dict[Outcome, str] = {
    "time": "time of a call", "energy": "energy of a call", "energy_delay": "energy times time of a call",
}  # fmt: skip
Trend = Literal["rising", "falling", "not monotone", "flat", "unknown"]


class FactorLevel(Struct, frozen=True):
    """A level of a factor, with all other factors at the base."""

    name: str
    value: float | None
    """None for a category."""
    median: float | None
    """Geometric mean of the medians of all processes: seconds, joules, or joule seconds."""
    low: float | None = None
    high: float | None = None
    processes: int = 0
    nbytes: int | None = None
    """Bytes that a call has to move at this level, where that depends on it."""
    task: str = ""
    """Id of the task in its first process."""


class FactorKnee(Struct, frozen=True):
    """A value at which the curve of a factor bends."""

    at: float
    low: float
    high: float
    before: float
    after: float
    """Exponents: the outcome grows as the value to this power."""
    nbytes: int | None = None


class FactorEffect(Struct, frozen=True):
    name: str
    levels: tuple[FactorLevel, ...]
    base: str
    """Name of the level at which the other factors were varied."""
    matters: bool | None
    """Whether the factor has an effect, its own or together with others; None if that cannot be told."""
    p: float | None
    """Probability of such an effect if there were noise alone, corrected for the number of factors."""
    share: float | None
    low: float | None
    high: float | None
    """Share of the variance of the logarithm that the factor explains by itself, with its interval."""
    total: float | None
    """The same, with its interactions."""
    ratio: float | None
    """The largest over the smallest median of its levels."""
    trend: Trend
    best: tuple[str, ...]
    """Names of the levels that nothing is surely better than; the lowest median comes first."""
    knees: tuple[FactorKnee, ...] = ()
    spearman: tuple[float, float, float] | None = None
    """Rank correlation over all points with its interval; None for categories."""
    information: float = 0.0
    """Mutual information with the outcome over all points, in bits, less what chance has."""
    information_p: float = 1.0
    sentences: tuple[str, ...] = ()


class FactorInteraction(Struct, frozen=True):
    first: str
    second: str
    share: float
    low: float
    high: float
    p: float
    sentence: str = ""


class FactorOutcome(Struct, frozen=True):
    outcome: Outcome
    effects: tuple[FactorEffect, ...]
    """The largest first."""
    interactions: tuple[FactorInteraction, ...]
    spread: float | None
    """Standard deviation of the logarithm over the ranges of all factors."""
    noise: float | None
    """Standard deviation of the logarithm between two processes at the same point."""
    quantity: str = ""
    """What was measured, as in `latency warm`."""


class FactorStudy(Struct, frozen=True):
    run: str
    op: str
    base: str
    """The case and settings at which each factor was varied alone."""
    backend: str
    implementation: str
    points: int
    processes: int
    failed: int
    outcomes: tuple[FactorOutcome, ...]
    notes: tuple[str, ...] = ()


class FactorSetting(Struct, frozen=True):
    """A setting that can be varied, or why it cannot here: a line of `opmark factors --list`."""

    name: str
    group: str
    """`operator`, `knob`, `resource` or `parallelism`."""
    range: str
    control: str
    """How opmark sets it."""
    why_not: str = ""
    default: bool = False
    """Whether it is varied unless factors are named."""
