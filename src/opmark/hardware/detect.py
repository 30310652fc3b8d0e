"""Facts about the host that may explain a number; the same for every backend."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

import psutil


@cache
def host() -> dict[str, Any]:
    return {
        "machine": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "cores": len(affinity()),
        "affinity": affinity(),
        "memory": psutil.virtual_memory().total,
        "governor": governor(),
        "max_mhz": _max_mhz(),
    }


def affinity() -> list[int]:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cpu_model() -> str:
    """From the kernel where it says so: py-cpuinfo measures for most of a second what a line of a file tells."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    import cpuinfo

    return str(cpuinfo.get_cpu_info().get("brand_raw", platform.processor()))


def governor() -> str | None:
    """The policy that sets the clocks; None where the kernel does not tell, as in most virtual machines."""
    return _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def turbo() -> bool | None:
    """Whether clocks may rise above nominal; None where the kernel does not tell."""
    no_turbo = _read("/sys/devices/system/cpu/intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == "0"
    boost = _read("/sys/devices/system/cpu/cpufreq/boost")
    return None if boost is None else boost == "1"


def hyperthreads() -> bool | None:
    active = _read("/sys/devices/system/cpu/smt/active")
    return None if active is None else active == "1"


def _max_mhz() -> float | None:
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return frequency.max or None if frequency else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
