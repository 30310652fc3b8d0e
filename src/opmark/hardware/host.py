"""Facts about the host that may explain a number, the same for every backend; and which devices it lacks."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import Any

import psutil

NODES = Path("/sys/devices/system/node")
_ARM = "0x41"
_ARM_CORES = {
    "0xd03": "Cortex-A53", "0xd07": "Cortex-A57", "0xd08": "Cortex-A72", "0xd0b": "Cortex-A76", "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1", "0xd49": "Neoverse-N2", "0xd4f": "Neoverse-V2", "0xd84": "Neoverse-V3",
    "0xd8e": "Neoverse-N3",
}  # fmt: skip
"""Names of Arm's designs by `CPU part` in /proc/cpuinfo, as lscpu prints them."""


@cache
def host() -> dict[str, Any]:
    cores = affinity()
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return {
        "machine": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "cores": len(cores),
        "affinity": cores,
        "numa": numa_nodes(),
        "memory": psutil.virtual_memory().total,
        "governor": governor(),
        "max_mhz": frequency.max or None if frequency else None,
    }


def affinity() -> list[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def numa_nodes() -> str | None:
    """Return the number of NUMA nodes and the processors of each, as in `2;0-31;32-63`; None if the kernel has none."""
    found = sorted(NODES.glob("node[0-9]*"), key=lambda node: int(node.name[4:]))
    return ";".join([str(len(found)), *(_read(str(node / "cpulist")) or "" for node in found)]) if found else None


def cpu_model() -> str:
    """Return the processor's name, from the kernel if possible: py-cpuinfo takes most of a second.

    On arm64 the kernel reports the number of the core's design, and not the name of the processor.
    """
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = (line.partition(":") for line in info.read_text().splitlines())
        facts = {key.strip(): value.strip() for key, _, value in lines}
        if "model name" in facts:
            return facts["model name"]
        if facts.get("CPU implementer") == _ARM and facts.get("CPU part") in _ARM_CORES:
            return _ARM_CORES[facts["CPU part"]]
    import cpuinfo

    return str(cpuinfo.get_cpu_info().get("brand_raw", platform.processor()))


def governor() -> str | None:
    """Return the policy that sets the clocks; None if the kernel does not report it, as in most virtual machines."""
    return _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def turbo() -> bool | None:
    """Return whether clocks may rise above nominal; None if the kernel does not report it."""
    no_turbo = _read("/sys/devices/system/cpu/intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == "0"
    boost = _read("/sys/devices/system/cpu/cpufreq/boost")
    return None if boost is None else boost == "1"


def hyperthreads() -> bool | None:
    active = _read("/sys/devices/system/cpu/smt/active")
    return None if active is None else active == "1"


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


# Tell from device files that a kind of device is missing, without asking a framework.

# A loaded driver creates one of these files. Under WSL, /dev/dxg stands for every GPU.
_FILES = {
    "cuda": ("an NVIDIA or AMD GPU", ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg")),
    "xpu": ("an Intel GPU", ("/dev/dri", "/dev/dxg")),
}


def why_no_device(device: str) -> str | None:
    """Return why there is no such device; None if there may be one."""
    if device == "mps" and sys.platform != "darwin":
        return "an Apple GPU needs macOS"
    if device not in _FILES or sys.platform != "linux":
        return None
    what, files = _FILES[device]
    return None if any(Path(file).exists() for file in files) else f"no driver of {what} is loaded here"
