"""NVML without a GPU. Its GPUs are a JSON file, which processes share as they share a driver; $FAKE_NVML names it.

A GPU answers a function `nvmlDeviceGetX` with its entry `GetX`; with several arguments, the entry holds answers by the
last one. What it has no entry for is not supported. `errors` maps functions to codes that they fail with. Locks of
clocks change the clock that it reads, after the readings in `before`, and each call that changes something is appended
to `calls`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
NVML_TEMPERATURE_GPU = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
NVML_COMPUTEMODE_DEFAULT, NVML_COMPUTEMODE_PROHIBITED, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 0, 2, 3
NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION, NVML_ERROR_NOT_FOUND = 2, 3, 4, 6
NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND = 9, 12
TDP = 0xFFFFFF01
_TEXTS = {1: "Uninitialized", 2: "Invalid Argument", 3: "Not Supported", 4: "Insufficient Permissions", 6: "Not Found"}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(_TEXTS.get(value, f"error {value}"))
        self.value = value


@contextmanager
def _state() -> Iterator[dict[str, Any]]:
    path = Path(os.environ["FAKE_NVML"])
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        state = json.load(file)
        before = json.dumps(state)
        yield state
        if json.dumps(state) != before:
            file.seek(0)
            file.truncate()
            json.dump(state, file)


def nvmlInit() -> None:
    with _state() as state:
        if "nvmlInit" in state.get("errors", {}):
            raise NVMLError(state["errors"]["nvmlInit"])


def nvmlDeviceGetCount() -> int:
    with _state() as state:
        return len(state["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> str:
    with _state() as state:
        if not 0 <= index < len(state["gpus"]):
            raise NVMLError(NVML_ERROR_NOT_FOUND)
        return list(state["gpus"])[index]


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:
    with _state() as state:
        if uuid.removeprefix("GPU-") not in state["gpus"]:
            raise NVMLError(NVML_ERROR_NOT_FOUND)
        return uuid.removeprefix("GPU-")


def nvmlDeviceGetUUID(handle: str) -> str:
    return f"GPU-{handle}"


class _Process:
    def __init__(self, pid: int, memory: int) -> None:
        self.pid, self.usedGpuMemory = pid, memory


def _answer(name: str, handle: str, *arguments: Any) -> Any:
    with _state() as state:
        gpu = state["gpus"][handle]
        if name in state.get("errors", {}):
            raise NVMLError(state["errors"][name])
        short = name.removeprefix("nvmlDevice")
        if TDP in arguments and "tdp" not in gpu:
            raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
        if short.startswith(("Set", "Reset")):
            state.setdefault("calls", []).append([short, handle, *arguments])
            kind = "memory" if "Memory" in short else "locked"
            gpu[kind] = (gpu["tdp"] if arguments[0] == TDP else arguments[0]) if arguments else None
            return None
        if short == "GetClockInfo" and arguments == (NVML_CLOCK_SM,) and gpu.get("locked"):
            return gpu["before"].pop(0) if gpu.get("before") else gpu["locked"]
        if short not in gpu:
            raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
        found = gpu[short]
        if short.endswith("Processes"):
            return [_Process(*one) for one in found]
        return found[str(arguments[-1])] if arguments else found


def __getattr__(name: str) -> Callable[..., Any]:
    if not name.startswith("nvmlDevice"):
        raise AttributeError(name)

    def function(handle: str, *arguments: Any) -> Any:
        return _answer(name, handle, *arguments)

    return function
