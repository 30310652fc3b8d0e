"""Tell from device files that a kind of device is missing, without asking a framework."""

from __future__ import annotations

import sys
from pathlib import Path

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
