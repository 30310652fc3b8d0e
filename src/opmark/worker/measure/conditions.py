"""Reads the sensors of the device and the counters of the host while samples are taken."""

from __future__ import annotations

import os
import resource
import time
from typing import NamedTuple

import psutil
from msgspec.structs import replace

from opmark.plugin import Sensors
from opmark.schema import Conditions, SensorReading

# A look costs a millisecond or two of NVML: often enough to see clocks move, seldom enough not to be the load.
_BETWEEN_LOOKS = 0.05
# A clock that has come back to this share of the highest has recovered from what ran before.
_RECOVERED = 0.985
_RECOVERY_STEP = 0.02
_LONG_ENOUGH = 0.1
_LONGEST_RECOVERY = 1.0


class _Counters(NamedTuple):
    wall: float
    switches: int
    own: float
    busy: float
    steal: float
    total: float

    @classmethod
    def now(cls) -> _Counters:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        steal = getattr(times, "steal", 0.0)
        guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted as user time already
        total = sum(times) - guest
        return cls(
            time.perf_counter(), usage.ru_nivcsw, usage.ru_utime + usage.ru_stime, total - idle - steal, steal, total
        )


class ConditionsMonitor:
    """Watches the conditions of measurements over the life of a worker. `begin` and `end` enclose one measurement."""

    def __init__(self, sensors: Sensors | None) -> None:
        self._sensors = sensors
        self._highest: float | None = None
        self._readings: list[SensorReading] = []
        self._last = -1.0
        self._start = self._earlier = _Counters.now()

    def begin(self) -> None:
        self._readings = []
        self._earlier, self._start = self._start, _Counters.now()
        self._look(0)

    def look(self, taken: int) -> None:
        """Read the sensors after some samples, unless that would be too soon after the last time."""
        if self._sensors and time.perf_counter() - self._last >= _BETWEEN_LOOKS:
            self._look(taken)

    def end(self, taken: int) -> Conditions:
        now, then = _Counters.now(), self._start
        self._look(taken)
        elapsed = now.wall - then.wall
        # The kernel counts in steps of 10 ms: over a short time the shares would be made of chance, and what was before
        # the measurement has to do.
        since = then if elapsed >= _LONG_ENOUGH else self._earlier
        total, long = now.total - since.total, now.wall - since.wall
        told = long >= _LONG_ENOUGH and total > 0
        return Conditions(
            readings=tuple(self._readings),
            highest_clock=self._highest,
            elapsed=elapsed,
            switches=now.switches - then.switches,
            load=os.getloadavg()[0],
            others=max(0.0, (now.busy - since.busy) - (now.own - since.own)) / long if told else None,
            steal=max(0.0, now.steal - since.steal) / total if told else None,
        )

    def recover(self) -> None:
        """Wait until the clock is back from the power or heat of what ran before, a second at most."""
        if self._sensors is None:
            return
        deadline = time.perf_counter() + _LONGEST_RECOVERY
        while True:
            clock = self._read().clock
            if clock is None or self._highest is None or clock >= _RECOVERED * self._highest:
                return
            if time.perf_counter() > deadline:
                return
            time.sleep(_RECOVERY_STEP)

    def energy(self) -> float | None:
        return self._sensors.energy() if self._sensors else None

    def _look(self, taken: int) -> None:
        if self._sensors:
            self._readings.append(replace(self._read(), at=taken))
            self._last = time.perf_counter()

    def _read(self) -> SensorReading:
        assert self._sensors is not None
        reading = self._sensors.read()
        if reading.clock:
            self._highest = max(reading.clock, self._highest or 0.0)
        return reading
