"""Cost of the engine itself, measured with a launch that does nothing."""

from __future__ import annotations

import operator
import time
from functools import partial
from statistics import median

from benchmarks.common import Row, Shell, inside_the_clock
from opmark.plugin import Launch
from opmark.schema import EFFORTS, Measurement
from opmark.units import seconds
from opmark.worker.measure.cache import warm
from opmark.worker.measure.clock import host_timers
from opmark.worker.measure.engine import measure
from opmark.worker.measure.instruments import ConditionsMonitor
from opmark.worker.measure.sampler import HostSampler

REPEATS = 5
EMPTY = partial(operator.truth, None)
# Long enough that the subtracted cost of the clock is a small part of it.
SHORT = partial(sum, range(1000))


def rows(shell: Shell) -> list[Row]:
    empty = [_once(EMPTY) for _ in range(REPEATS)]
    found = [_once(SHORT) for _ in range(REPEATS)]
    clock = host_timers(None)["latency"]
    per_call = clock.overhead(2) - clock.overhead(1)
    left = median(median(measurement.samples) for measurement, _ in empty)
    outside = median((wall - inside_the_clock(m)) / len(m.samples) for m, wall in found)
    share = median(1 - inside_the_clock(m) / wall for m, wall in found)
    return [
        Row("the clock's own cost, which is subtracted", "", _costs(clock.overhead(1) - per_call, per_call), None),
        Row("what is left of a call that does nothing", "", seconds(left), None),
        Row("the engine outside the clock", "", f"{seconds(outside)} a sample ({100 * share:.1f} % of its time)", None),
    ]


def _once(launch: Launch) -> tuple[Measurement, float]:
    sampler = HostSampler("latency", host_timers(None)["latency"], warm(launch), batches=True)
    start = time.perf_counter()
    (measurement,) = measure(sampler, EFFORTS["quick"], ConditionsMonitor(None))
    return measurement, time.perf_counter() - start


def _costs(per_sample: float, per_call: float) -> str:
    return f"{seconds(per_sample)} a sample + {seconds(per_call)} a call"
