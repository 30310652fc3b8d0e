"""Doubts that no measurement has by itself: processes that differ, and more than the hardware can do."""

from __future__ import annotations

from collections.abc import Iterable

APART = 0.10
"""Half the width of the interval over processes, over their centre: beyond this it is said."""
ABOVE_PEAK = 1.05
"""Of a measured peak: a share beyond this says that the peak is none."""

PROCESSES_DIFFER = "processes-differ"
IS_ABOVE_PEAK = "above-peak"
_OF_ONE_PROCESS = "imprecise"
"""How sure one process is of its own median says nothing once there are several."""


def half_width(median: float, low: float, high: float) -> float:
    """Of an interval, relative to the centre; 0 where that is none."""
    return (high - low) / 2 / median if median > 0 else 0.0


def holds_over_processes(code: str) -> bool:
    """Whether a caution of one process is one of several together."""
    return code != _OF_ONE_PROCESS


def codes_over_processes(codes: Iterable[str], measured: int, half: float) -> list[str]:
    """Those of several processes together. `measured`: how many of them have a number; `half`: as `half_width`."""
    apart = [PROCESSES_DIFFER] if measured > 1 and half > APART else []
    return [*apart, *filter(holds_over_processes, codes)]
