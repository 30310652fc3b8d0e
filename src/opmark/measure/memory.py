"""The peak memory of this process, from the kernel's count of resident pages."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import psutil

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
