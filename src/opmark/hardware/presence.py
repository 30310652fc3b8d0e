"""Whether a kind of device is certainly not here, told by the kernel's files: no framework is asked."""

from __future__ import annotations

import sys
from pathlib import Path

# A driver that is loaded has made one of these. Under WSL one file stands for every GPU.
_FILES = {
    "cuda": ("an NVIDIA or AMD GPU", ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg")),
    "xpu": ("an Intel GPU", ("/dev/dri", "/dev/dxg")),
}


def why_no_device(device: str) -> str | None:
    """None where it may be here, or where nobody knows."""
    if device == "mps" and sys.platform != "darwin":
        return "an Apple GPU needs macOS"
    if device not in _FILES or sys.platform != "linux":
        return None
    what, files = _FILES[device]
    return None if any(Path(file).exists() for file in files) else f"no driver of {what} is loaded here"
