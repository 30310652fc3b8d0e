"""A series of numbers in a few characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_BARS = "▁▂▃▄▅▆▇█"
WIDTH = 30
_STILL = 0.02
"""A series that moves by less is drawn flat: else noise would look like news."""


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Positive values, by logarithm; where there are more than characters, neighbours share one."""
    if not values:
        return ""
    logs = _shared([math.log(value) for value in values], width)
    low, high = min(logs), max(logs)
    span = max(high - low, _STILL)
    start = low - (span - (high - low)) / 2
    return "".join(_BARS[min(len(_BARS) - 1, int((value - start) / span * len(_BARS)))] for value in logs)


def _shared(logs: Sequence[float], width: int) -> list[float]:
    if len(logs) <= width:
        return list(logs)
    ends = [round(i * len(logs) / width) for i in range(width + 1)]
    return [sum(logs[a:b]) / (b - a) for a, b in pairwise(ends)]
