"""Instruments of a worker: clocks, sensors, memory counters and caches of its backend where it has them, else of the
host; and the conditions that they show while samples are taken."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from msgspec.structs import replace

from opmark.hardware.sensors import CpuSensors, last_level_bytes, nvml_sensors
from opmark.plugin import Backend, BackendInfo, DeviceClock, Launch, MemoryProbe, Sensors, Timer
from opmark.schema import Conditions, Memory, SensorReading
from opmark.worker.measure.clock import fastest_call, host_timers
from opmark.worker.measure.cupti import open_cupti

READ = "read"
"""Says in the facts of an environment that sensors are read."""

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_TASKS = Path("/proc/self/task")
_RESET_PEAK = "5"

# A look costs a millisecond or two of NVML: often enough to see clocks move, seldom enough not to be the load.
_BETWEEN_LOOKS = 0.05
# A clock that has come back to this share of the highest has recovered from the load before.
_RECOVERED = 0.985
_RECOVERY_STEP = 0.02
_LONG_ENOUGH = 0.1
_LONGEST_RECOVERY = 1.0


@dataclass
class Instruments:
    timers: dict[str, Timer]
    clock: DeviceClock | None
    watch: ConditionsMonitor
    memory: MemoryProbe | None
    cache_bytes: int | None
    smallest: Launch | None
    """A call that does next to nothing; None where the backend has none."""
    why_no_cupti: str = ""
    """Why an NVIDIA GPU is not timed by CUPTI's records, read by opmark itself."""
    long_tasks: int = 0
    """Tasks measured so far that a second timer could check: now and then it does."""
    _scratch: tuple[int, Launch] | None = None
    _least_call: float | None = None

    @classmethod
    def of(cls, info: BackendInfo, backend: Backend, sensors: Sensors | None) -> Instruments:
        own = backend.timers()
        # First of all this makes the context of a GPU, which its clock then finds.
        smallest, clock, why = backend.overwrite(1), backend.device_clock(), ""
        if info.device == "cuda" and (clock is None or clock.replaceable):
            cupti, why = open_cupti(backend.synchronize, clock)
            clock = cupti or clock
        return cls(
            timers=dict(own) if own else host_timers(backend.synchronize if backend.asynchronous else None),
            clock=clock,
            watch=ConditionsMonitor(sensors),
            # The pages of this process say nothing about the memory of a device.
            memory=backend.memory() or (ResidentPages() if info.device in ("cpu", "none") else None),
            cache_bytes=backend.cache_bytes() or (last_level_bytes() if info.device == "cpu" else None),
            smallest=smallest,
            why_no_cupti=why,
        )

    @property
    def least_call(self) -> float | None:
        """Seconds of a call that does next to nothing; None where the backend has no such call."""
        if self._least_call is None and self.smallest is not None:
            self._least_call = fastest_call(self.timers["latency"], self.smallest)
        return self._least_call

    def start_memory(self) -> int:
        """Bytes in use now, above which the peak of memory is counted."""
        return self.memory.start() if self.memory else 0

    def forget_peak(self) -> None:
        """Count the peak anew from here on: what making the inputs took for a while is not the operator's."""
        if self.memory:
            self.memory.start()

    def memory_since(self, baseline: int) -> Memory | None:
        """The peak of memory above a baseline, which `start_memory` gave; None where nothing counts memory."""
        if self.memory is None:
            return None
        peak = max(0, self.memory.peak() - baseline)
        return Memory(peak, baseline, self.memory.source, self.memory.resolution)

    @property
    def overwrites(self) -> bool:
        """Whether the backend can overwrite its caches."""
        return self.smallest is not None

    def overwrite(self, backend: Backend, nbytes: int) -> Launch:
        """A launch that overwrites so many bytes. It is kept: allocating it anew would cost more than using it."""
        if self._scratch is None or self._scratch[0] < nbytes:
            launch = backend.overwrite(nbytes)
            assert launch is not None
            self._scratch = (nbytes, launch)
        return self._scratch[1]


def sensors_of(info: BackendInfo, backend: Backend, facts: dict[str, Any]) -> tuple[Sensors | None, str]:
    """(the sensors of what computes, or None; "read", or why there are none)."""
    own = backend.sensors()
    if own:
        return own, READ
    if "gpu_uuid" in facts:
        gpu, why = nvml_sensors(str(facts["gpu_uuid"]))
        return gpu, why or READ
    if info.device == "cpu":
        cpu = CpuSensors.detect()
        return cpu, READ if cpu else "the kernel tells neither clock nor energy (usual in a virtual machine)"
    return None, f"opmark knows no sensors of {info.device}"


class _Counters(NamedTuple):
    wall: float
    switches: int
    waited: float | None
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
            time.perf_counter(), usage.ru_nivcsw, _waited(), usage.ru_utime + usage.ru_stime, total - idle - steal,
            steal, total,
        )  # fmt: skip


def _waited() -> float | None:
    """Return the seconds that the threads of this process have waited for a core while they could run."""
    total = 0
    try:
        for task in _TASKS.iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
                total += int((task / "schedstat").read_bytes().split()[1])
    except OSError:
        return None
    return total / 1e9


def _since(now: float | None, then: float | None) -> float | None:
    """Return what was waited meanwhile; None if a thread has ended and taken more with it than came on top."""
    return None if now is None or then is None or now < then else now - then


class ConditionsMonitor:
    """Watches the conditions of measurements over the life of a worker. `begin` and `end` enclose one measurement."""

    def __init__(self, sensors: Sensors | None) -> None:
        self.has_sensors = sensors is not None
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
        if time.perf_counter() - self._last >= _BETWEEN_LOOKS:
            self._look(taken)

    def end(self, taken: int) -> Conditions:
        now, then = _Counters.now(), self._start
        self._look(taken)
        elapsed = now.wall - then.wall
        # The kernel counts in steps of 10 ms: over a short time the shares would be made of chance, and what was before
        # the measurement has to do.
        since = then if elapsed >= _LONG_ENOUGH else self._earlier
        total, long = now.total - since.total, now.wall - since.wall
        countable = long >= _LONG_ENOUGH and total > 0
        return Conditions(
            readings=tuple(self._readings),
            highest_clock=self._highest,
            elapsed=elapsed,
            switches=now.switches - then.switches,
            waited=_since(now.waited, then.waited),
            load=os.getloadavg()[0],
            others=max(0.0, (now.busy - since.busy) - (now.own - since.own)) / long if countable else None,
            steal=max(0.0, now.steal - since.steal) / total if countable else None,
        )

    def recover(self) -> None:
        """Wait, for a second at most, until the device's clock has recovered from the load before."""
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


class ResidentPages:
    """Counts resident pages. Linux records the peak and lets a process reset it; elsewhere only the use at the end is
    seen."""

    resolution = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

    def __init__(self) -> None:
        self._resettable = sys.platform == "linux" and os.access(_CLEAR, os.W_OK)
        self.source = "resident pages" if self._resettable else "resident pages, sampled"

    def start(self) -> int:
        # Freed pages go back to the system first: those that the C library keeps would hide the next task's use.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
        if trim:
            trim(0)
        if not self._resettable:
            return _resident()
        _CLEAR.write_text(_RESET_PEAK)
        return _kernel_count("VmHWM")

    def peak(self) -> int:
        return _kernel_count("VmHWM") if self._resettable else _resident()


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _kernel_count(key: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {key}")
