"""Facts about the host that may explain a number, the same for every backend; and which devices it lacks."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections import Counter
from ctypes import CDLL
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


def cores_by_place() -> list[int]:
    """Return the cores that this process may use, those of one package and threads of one physical core side by
    side."""
    return sorted(affinity(), key=_place_of_core)


def _place_of_core(core: int) -> tuple[int, int, int]:
    folder = f"/sys/devices/system/cpu/cpu{core}/topology"
    package, physical = (_read(f"{folder}/{name}") or "" for name in ("physical_package_id", "core_id"))
    return (int(package) if package.isdecimal() else 0, int(physical) if physical.isdecimal() else core, core)


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
_NVIDIA_FILES = ("/dev/nvidiactl", "/dev/nvidia0")
_FILES = {
    "cuda": ("an NVIDIA or AMD GPU", (*_NVIDIA_FILES, "/dev/kfd", "/dev/dxg")),
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


# What NVIDIA's driver says without being asked to start: a GPU that is idle may take a second to wake up.

DRIVER = Path("/proc/driver/nvidia")
DRIVER_LIBRARY = "libcuda.so.1"


def nvidia_driver() -> dict[str, str]:
    """Return the version of NVIDIA's driver and the names of its GPUs, as far as its kernel module reports them."""
    found = {}
    version = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", _read(str(DRIVER / "version")) or "")
    if version:
        found["driver"] = version[0]
    texts = (_read(str(path)) or "" for path in sorted(DRIVER.glob("gpus/*/information")))
    models = Counter(model[1] for text in texts if (model := re.search(r"^Model:\s*(.+?)\s*$", text, re.MULTILINE)))
    if models:
        found["gpu"] = ", ".join(f"{count} × {model}" if count > 1 else model for model, count in models.items())
    return found


def why_no_driver_library() -> str | None:
    """Return why programs cannot talk to an NVIDIA GPU although its driver is loaded; None if they can, or if there is
    no such GPU. Containers have the device and lack the library if they were started without NVIDIA's tools."""
    if not any(Path(file).exists() for file in _NVIDIA_FILES):
        return None
    try:
        CDLL(DRIVER_LIBRARY)
    except OSError:
        return f"{DRIVER_LIBRARY} of NVIDIA's driver cannot be loaded here"
    return None
