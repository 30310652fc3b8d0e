"""A series of numbers in a few characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

_BARS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-~=+*#"
"""For streams that cannot write those; as many, so that both say the same."""
WIDTH = 30
_STILL = 0.02
"""A series that moves by less is drawn flat: else noise would look like news."""


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Positive values, by logarithm; where there are more than characters, neighbours share one."""
    return _drawn(_shared([math.log(value) for value in values], width, _mean), _BARS)


def samples_line(values: Sequence[float], width: int, encoding: str) -> str:
    """Samples in the order taken. Where several share a character it is the slowest of them: one straggler among a
    thousand is what a reader looks for, and a mean would hide it. What is no positive number cannot be drawn."""
    if values and not (min(values) > 0 and math.isfinite(sum(values))):
        values = [value for value in values if 0 < value < math.inf]
    return _drawn([math.log(value) for value in _shared(values, width, max)], bars_for(encoding))


def bars_for(encoding: str) -> str:
    """The signs that the stream can write."""
    try:
        _BARS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _BARS


def _drawn(logs: Sequence[float], bars: str) -> str:
    if not logs:
        return ""
    low, high = min(logs), max(logs)
    span = max(high - low, _STILL)
    start, scale, top = low - (span - (high - low)) / 2, len(bars) / span, len(bars) - 1
    return "".join([bars[min(top, int((value - start) * scale))] for value in logs])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _shared(values: Sequence[float], width: int, of: Callable[[Sequence[float]], float]) -> list[float]:
    if len(values) <= width:
        return list(values)
    ends = [round(i * len(values) / width) for i in range(width + 1)]
    return [of(values[a:b]) for a, b in pairwise(ends)]
