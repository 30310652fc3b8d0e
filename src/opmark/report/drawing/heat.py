"""Steps of the colours of a heatmap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from opmark.report.drawing.scale import Linear, Log
from opmark.schema.chart import Axis

STEPS = 10
"""The style sheet has as many colours."""


class Heat(NamedTuple):
    scale: Linear | Log

    def step(self, value: float) -> int:
        return min(STEPS - 1, int(self.scale.place(value) * STEPS))

    def border(self, step: int) -> float:
        """The value at which it begins."""
        return self.scale.value(step / STEPS)


def heat(axis: Axis, values: Sequence[float]) -> Heat:
    """From end to end of the values, but of a share from 0 % to 100 %, so that a colour always means the same;
    what is above has the last one."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if axis.scale in ("linear", "category"):
        if axis.unit == "share" and low >= 0:
            return Heat(Linear(0.0, 1.0))
        return Heat(Linear(low, high) if high > low else Linear(low - 0.5, low + 0.5))
    low, high = math.log10(low), math.log10(high)
    return Heat(Log(low, high) if high > low else Log(low - 0.5, low + 0.5))
