"""Measurement: raw samples of one quantity, how they were taken, why sampling stopped, and cautions."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from opmark.schema.conditions import Conditions
from opmark.schema.quantity import Cache

Stop = Literal["precise", "budget", "count"]
"""`precise`: the interval is narrow enough. `budget`: time ran out first. `count`: the requested number was taken."""


PREEMPTED = "preempted"
"""Code of the one caution that makes a number worthless: it measures the scheduler, not the operator."""


class Caution(Struct, frozen=True):
    """A reason to doubt a number: the observation, its limit, and what to do."""

    code: str
    message: str
    hint: str = ""


class Kernel(Struct, frozen=True):
    """A kernel, a copy or a fill that ran on the device for a call."""

    name: str
    count: float
    """Launches per call."""
    time: float
    """Seconds per call, over all its launches."""


class CrossCheck(Struct, frozen=True):
    """The median that another timer measured for the same calls."""

    timer: str
    median: float


class Measurement(Struct, frozen=True):
    quantity: str
    """A key of QUANTITIES."""
    cache: Cache
    timer: str
    samples: list[float]
    """Seconds (or joules) per call, in the order taken, outliers included, without the harness's own cost."""
    calls: int
    """Calls per sample: each sample is the mean of that many back-to-back calls."""
    overhead: float
    """Seconds per call that were subtracted from each sample as the harness's own cost."""
    warmup_calls: int
    warmup_time: float
    stop: Stop
    cautions: tuple[Caution, ...] = ()
    control: str = ""
    """How the caches were made cold."""
    conditions: Conditions = Conditions()
    kernels: tuple[Kernel, ...] = ()
    """For device_time: the kernels that it is the sum of."""
    check: CrossCheck | None = None
    by_rank: tuple[tuple[float, ...], ...] = ()
    """Samples of each rank, if several ranks measured together; `samples` then holds the slowest rank's each time."""
    warmup_samples: tuple[float, ...] = ()
    """Seconds of each warm-up call, if their number was fixed and the clock can time single calls."""

    @property
    def throttled(self) -> list[int]:
        """Indices of the samples that were taken while the clock was throttled."""
        held = {reading.at for reading in self.conditions.readings if reading.throttle}
        if not held:
            return []
        return [i for i in range(len(self.samples)) if any(r.throttle for r in self.conditions.at(i))]
