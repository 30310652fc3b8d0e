"""Measurement: raw samples of one quantity, how they were taken, why sampling stopped, what is doubtful."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from opmark.schema.conditions import Conditions
from opmark.schema.quantity import Cache

Stop = Literal["precise", "budget", "count"]
"""`precise`: the interval is as narrow as asked. `budget`: the time was spent first. `count`: as many as asked for."""


PREEMPTED = "preempted"
"""The code of the one caution that makes a number worthless: it is the scheduler's and not the operator's."""


class Caution(Struct, frozen=True):
    """A reason to doubt a number: what was measured, what the limit is, what to do."""

    code: str
    message: str
    hint: str = ""


class Kernel(Struct, frozen=True):
    """Something that ran on the device for a call: a kernel, a copy or a fill."""

    name: str
    count: float
    """Launches a call."""
    time: float
    """Seconds a call, all its launches together."""


class CrossCheck(Struct, frozen=True):
    """What another timer said of the same."""

    timer: str
    median: float


class Measurement(Struct, frozen=True):
    quantity: str
    """As in QUANTITIES."""
    cache: Cache
    timer: str
    samples: list[float]
    """Seconds (or joules) a call, in the order taken, outliers included; the harness's own cost is taken off."""
    calls: int
    """Calls a sample: each sample is the mean of that many back-to-back calls."""
    overhead: float
    """Seconds a call that were taken off each sample as the harness's own."""
    warmup_calls: int
    warmup_time: float
    stop: Stop
    cautions: tuple[Caution, ...] = ()
    control: str = ""
    """How the caches were made cold."""
    conditions: Conditions = Conditions()
    kernels: tuple[Kernel, ...] = ()
    """Of device_time: what it is the sum of."""
    check: CrossCheck | None = None
    by_rank: tuple[tuple[float, ...], ...] = ()
    """Where several ranks measured together: the samples of each. `samples` then has the slowest of them every time."""
    warmup_samples: tuple[float, ...] = ()
    """Seconds of each call of a warm-up of a fixed number of calls, where the clock can tell them."""

    @property
    def throttled(self) -> list[int]:
        """The samples that were taken while the clock was held down."""
        held = {reading.at for reading in self.conditions.readings if reading.throttle}
        if not held:
            return []
        return [i for i in range(len(self.samples)) if any(r.throttle for r in self.conditions.at(i))]
