"""What a worker measures with: clocks, sensors and caches of its backend where it has them, else of the host."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from opmark.hardware.sensors import CpuSensors, last_level_bytes, nvml_sensors
from opmark.plugin import Backend, BackendInfo, DeviceClock, Launch, MemoryProbe, Sensors, Timer
from opmark.schema import Memory
from opmark.worker.measure.clock import fastest_call, host_timers
from opmark.worker.measure.conditions import ConditionsMonitor

# The peak memory of this process, from the kernel's count of resident pages.

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class ResidentPages:
    """Counts resident pages. Linux records the peak and lets a process reset it; elsewhere only the use at the end is
    seen."""

    resolution = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

    def __init__(self) -> None:
        self._resettable = sys.platform == "linux" and os.access(_CLEAR, os.W_OK)
        self.source = "resident pages" if self._resettable else "resident pages, sampled"

    def start(self) -> int:
        _give_back_freed()
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


def _give_back_freed() -> None:
    """Return freed pages to the system: pages that the C library keeps would hide the next task's use."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    trim = getattr(libc, "malloc_trim", None)
    if trim:
        trim(0)


READ = "read"


@dataclass
class Instruments:
    timers: dict[str, Timer]
    clock: DeviceClock | None
    watch: ConditionsMonitor
    memory: MemoryProbe | None
    cache_bytes: int | None
    smallest: Launch | None
    """A call that does next to nothing; None where the backend has none."""
    long_tasks: int = 0
    """Tasks measured so far that a second timer could check: now and then it does."""
    _scratch: tuple[int, Launch] | None = None
    _least_call: float | None = None

    @classmethod
    def of(cls, info: BackendInfo, backend: Backend, sensors: Sensors | None) -> Instruments:
        own = backend.timers()
        return cls(
            timers=dict(own) if own else host_timers(backend.synchronize if backend.asynchronous else None),
            clock=backend.device_clock(),
            watch=ConditionsMonitor(sensors),
            # The pages of this process say nothing about the memory of a device.
            memory=backend.memory() or (ResidentPages() if info.device in ("cpu", "none") else None),
            cache_bytes=backend.cache_bytes() or (last_level_bytes() if info.device == "cpu" else None),
            smallest=backend.overwrite(1),
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
        cpu = CpuSensors.here()
        return cpu, READ if cpu else "the kernel tells neither clock nor energy (usual in a virtual machine)"
    return None, f"opmark knows no sensors of {info.device}"
