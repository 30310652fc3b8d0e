"""Caches, clock and energy of the processor, as far as the kernel reports them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from opmark.schema import Reading

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
                found.append(CacheLevel(int(level), _nbytes(size), _count(shared or "0")))
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
        self._energy = _packages(rapl)

    @classmethod
    def here(cls) -> CpuSensors | None:
        sensors = cls()
        return sensors if sensors.read().clock is not None or sensors.energy() is not None else None

    def read(self) -> Reading:
        kilohertz = _read(self._clock)
        return Reading(clock=float(kilohertz) * 1e3 if kilohertz else None)

    def energy(self) -> float | None:
        found = [_read(path) for path in self._energy]
        return sum(int(microjoules) for microjoules in found if microjoules) * 1e-6 if found and all(found) else None


def _packages(rapl: Path) -> list[Path]:
    """Return one energy counter per package. Other zones count the same energy again: parts, the whole platform."""
    counters = {_read(zone / "name"): zone / "energy_uj" for zone in sorted(rapl.glob("*"))}
    return [counter for name, counter in counters.items() if name and name.startswith("package")]


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


def _count(cores: str) -> int:
    """Count the cores of a list such as `0-3,8`, which has five."""
    total = 0
    for part in cores.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total
