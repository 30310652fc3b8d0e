"""Cautions that no measurement has by itself: processes that differ, and more than the hardware can do."""

from __future__ import annotations

from collections.abc import Iterable

APART = 0.10
"""Half the width of the interval over processes, relative to their centre, beyond which they are said to differ."""
ABOVE_PEAK = 1.05
"""Share of a peak beyond which the peak, the cost or the clock is wrong. A little more than 1, since a measured peak is
a measurement, too."""

PROCESSES_DIFFER = "processes-differ"
IS_ABOVE_PEAK = "above-peak"
_OF_ONE_PROCESS = "imprecise"
"""How sure one process is of its own median says nothing once there are several."""


def is_above(share: float) -> bool:
    """Whether a share of a peak is more than is possible."""
    return share > ABOVE_PEAK


def half_width(median: float, low: float, high: float) -> float:
    """Half the width of an interval relative to its centre; 0 where the centre is not above 0."""
    return (high - low) / 2 / median if median > 0 else 0.0


def holds_over_processes(code: str) -> bool:
    """Whether a caution of one process is also one of several together."""
    return code != _OF_ONE_PROCESS


def codes_over_processes(codes: Iterable[str], measured: int, half: float) -> list[str]:
    """The codes of several processes together. `measured`: how many of them have a number; `half`: as `half_width`."""
    apart = [PROCESSES_DIFFER] if measured > 1 and half > APART else []
    return [*apart, *filter(holds_over_processes, codes)]
