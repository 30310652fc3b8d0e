"""What the engine itself costs, against a launch that does nothing."""

from __future__ import annotations

import operator
import time
from functools import partial
from statistics import median

from benchmarks.common import Row, Shell, inside_the_clock
from opmark.measure.clock import WallClock
from opmark.measure.engine import measure
from opmark.schema import EFFORTS, Measurement
from opmark.units import seconds

REPEATS = 5
EMPTY = partial(operator.truth, None)


def rows(shell: Shell) -> list[Row]:
    found = [_once() for _ in range(REPEATS)]
    clock = WallClock()
    per_call = clock.overhead(2) - clock.overhead(1)
    left = median(median(measurement.samples) for measurement, _ in found)
    outside = median((wall - inside_the_clock(m)) / len(m.samples) for m, wall in found)
    share = median(1 - inside_the_clock(m) / wall for m, wall in found)
    return [
        Row("the clock's own cost, taken off", "", _costs(clock.overhead(1) - per_call, per_call), None),
        Row("what is left of a call that does nothing", "", seconds(left), None),
        Row("the engine outside the clock", "", f"{seconds(outside)} a sample ({100 * share:.1f} % of its time)", None),
    ]


def _once() -> tuple[Measurement, float]:
    clock, rule = WallClock(), EFFORTS["quick"]
    start = time.perf_counter()
    measurement = measure(EMPTY, clock, rule)
    return measurement, time.perf_counter() - start


def _costs(per_sample: float, per_call: float) -> str:
    return f"{seconds(per_sample)} a sample + {seconds(per_call)} a call"
