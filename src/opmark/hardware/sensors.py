"""Sensors of an NVIDIA GPU through NVML, and of the processor through the kernel: clock, power, energy, caches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from opmark.hardware.topology import core_list
from opmark.schema import SensorReading

# Bits of the "clocks event reasons" that mean throttling, and opmark's word for each.
_REASONS = {
    0x0000000000000004: "power",  # software power cap
    0x0000000000000008: "hardware",  # hardware slowdown
    0x0000000000000020: "temperature",  # software thermal slowdown
    0x0000000000000040: "temperature",  # hardware thermal slowdown
    0x0000000000000080: "power",  # hardware power brake
}


def throttle_reasons(bits: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for bit, word in _REASONS.items() if bits & bit))


class NvmlSensors:
    """The sensors of one GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def read(self) -> SensorReading:
        clock = self.ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)
        power = self.ask("nvmlDeviceGetPowerUsage")
        heat = self.ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU)
        return SensorReading(
            clock=None if clock is None else clock * 1e6,
            power=None if power is None else power * 1e-3,
            temperature=None if heat is None else float(heat),
            throttle=throttle_reasons(self.clock_event_bits()),
        )

    def energy(self) -> float | None:
        millijoules = self.ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules * 1e-3

    def clock_event_bits(self) -> int:
        """Return the bits of the reasons why the clock is below its highest; 0 if they are not known."""
        bits = self.ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # the name in older drivers and libraries
            bits = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return bits or 0

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call an NVML function; None if this GPU, driver or library does not support it."""
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError):  # an old driver; an old library
            return None


def nvml_sensors(uuid: str) -> tuple[NvmlSensors | None, str]:
    """Return (sensors of the GPU with that UUID or None, the reason if there are none)."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None, "nvidia-ml-py is not installed (pip install 'opmark[nvidia]')"
    try:
        pynvml.nvmlInit()
        return NvmlSensors(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")), ""
    except pynvml.NVMLError as error:
        return None, f"NVML does not answer: {error}"


def visible_gpu() -> dict[str, str]:
    """Return name and UUID of the GPU that a framework uses first, for frameworks that do not report it.

    Empty if NVML does not report it either.
    """
    try:
        import pynvml
    except ModuleNotFoundError:
        return {}
    try:
        pynvml.nvmlInit()
        for _, handle in visible_handles(pynvml):
            name, uuid = (decode_text(ask(handle)) for ask in (pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetUUID))
            return {"gpu": name, "gpu_uuid": uuid.removeprefix("GPU-")}
    except pynvml.NVMLError:
        pass
    return {}


def visible_handles(nvml: Any) -> list[tuple[int, Any]]:
    """Return NVML's numbers and handles of the GPUs that CUDA shows to a process, in CUDA's order.

    CUDA_VISIBLE_DEVICES names them by number or by the beginning of their UUID, and ends at the first name that no GPU
    has. CUDA numbers GPUs as NVML does where all are of one kind, or CUDA_DEVICE_ORDER is PCI_BUS_ID.
    """
    every = [(index, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())]
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return every
    found = []
    for name in map(str.strip, listed.split(",")):
        if name.isdecimal():
            fitting = every[int(name) : int(name) + 1]
        elif name.startswith("MIG-"):  # a part of a GPU
            part = nvml.nvmlDeviceGetHandleByUUID(name)
            whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
            fitting = [(nvml.nvmlDeviceGetIndex(whole), part)]
        else:
            fitting = [one for one in every if name and decode_text(nvml.nvmlDeviceGetUUID(one[1])).startswith(name)]
        if len(fitting) != 1:
            break
        found += fitting
    return found


def decode_text(value: str | bytes) -> str:
    """Decode a text: older versions of the library return bytes."""
    return value.decode() if isinstance(value, bytes) else value


# Caches, clock and energy of the processor, as far as the kernel reports them.

_CPU = Path("/sys/devices/system/cpu")
_RAPL = Path("/sys/class/powercap")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class CacheLevel(NamedTuple):
    level: int
    nbytes: int
    """Bytes of one instance."""
    shared_by: int
    """Number of cores that share an instance."""


def caches(root: Path = _CPU) -> list[CacheLevel]:
    """Return the data caches of the first core that this process may use, the smallest first; empty if unknown."""
    found = []
    for index in sorted((root / f"cpu{_core()}" / "cache").glob("index*")):
        if _read(index / "type") in ("Data", "Unified"):
            level, size, shared = (_read(index / name) for name in ("level", "size", "shared_cpu_list"))
            if level and size:
                found.append(CacheLevel(int(level), _nbytes(size), len(core_list(shared or "0"))))
    return sorted(found, key=lambda cache: cache.nbytes)


def last_level_bytes(root: Path = _CPU) -> int | None:
    """Return the bytes of all instances of the largest cache on this machine; None if unknown."""
    levels = caches(root)
    if not levels:
        return None
    last = levels[-1]
    return last.nbytes * max(1, (os.cpu_count() or 1) // last.shared_by)


class CpuSensors:
    """The clock of the first usable core and the energy of all packages, where the kernel reports them."""

    def __init__(self, cpu: Path = _CPU, rapl: Path = _RAPL) -> None:
        self._clock = cpu / f"cpu{_core()}" / "cpufreq" / "scaling_cur_freq"
        # One energy counter per package. Other zones count the same energy again: parts, the whole platform.
        counters = {_read(zone / "name"): zone / "energy_uj" for zone in sorted(rapl.glob("*"))}
        self._energy = [counter for name, counter in counters.items() if name and name.startswith("package")]

    @classmethod
    def detect(cls) -> CpuSensors | None:
        sensors = cls()
        return sensors if sensors.read().clock is not None or sensors.energy() is not None else None

    def read(self) -> SensorReading:
        kilohertz = _read(self._clock)
        return SensorReading(clock=float(kilohertz) * 1e3 if kilohertz else None)

    def energy(self) -> float | None:
        found = [_read(path) for path in self._energy]
        return sum(int(microjoules) for microjoules in found if microjoules) * 1e-6 if found and all(found) else None


def _core() -> int:
    """Return the first core that this process may use."""
    return min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _nbytes(size: str) -> int:
    return int(size[:-1]) * _UNITS[size[-1]] if size[-1] in _UNITS else int(size)
