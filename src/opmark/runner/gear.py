"""What a worker measures with: clocks, sensors and caches of its backend where it has them, else of the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opmark.hardware.cpu import CpuSensors, last_level_bytes
from opmark.hardware.nvml import nvml_sensors
from opmark.interfaces import Backend, BackendInfo, DeviceClock, MemoryProbe, Sensors, Timer
from opmark.measure.clock import host_timers
from opmark.measure.conditions import Watch
from opmark.measure.memory import ResidentPages
from opmark.measure.overhead import fastest_call
from opmark.schema import Launch, Memory

READ = "read"


@dataclass
class Gear:
    timers: dict[str, Timer]
    clock: DeviceClock | None
    watch: Watch
    memory: MemoryProbe
    cache_bytes: int | None
    smallest: Launch
    """A call that does next to nothing."""
    long_tasks: int = 0
    """Tasks measured so far that a second timer could check: now and then it does."""
    _scratch: tuple[int, Launch] | None = None
    _least_call: float | None = None

    @classmethod
    def of(cls, info: BackendInfo, backend: Backend, sensors: Sensors | None) -> Gear:
        own = backend.timers()
        return cls(
            timers=dict(own) if own else host_timers(backend.synchronize if backend.asynchronous else None),
            clock=backend.device_clock(),
            watch=Watch(sensors),
            memory=backend.memory() or ResidentPages(),
            cache_bytes=backend.cache_bytes() or (last_level_bytes() if info.device == "cpu" else None),
            smallest=backend.overwrite(1),
        )

    @property
    def least_call(self) -> float:
        """Seconds of a call that does next to nothing."""
        if self._least_call is None:
            self._least_call = fastest_call(self.timers["latency"], self.smallest)
        return self._least_call

    def start_memory(self) -> int:
        """Bytes in use now, above which the peak of memory is counted."""
        return self.memory.start()

    def memory_since(self, baseline: int) -> Memory:
        """The peak of memory above a baseline, which `start_memory` gave."""
        peak = max(0, self.memory.peak() - baseline)
        return Memory(peak, baseline, self.memory.source, self.memory.resolution)

    def overwrite(self, backend: Backend, nbytes: int) -> Launch:
        """A launch that overwrites so many bytes. It is kept: allocating it anew would cost more than using it."""
        if self._scratch is None or self._scratch[0] < nbytes:
            self._scratch = (nbytes, backend.overwrite(nbytes))
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
