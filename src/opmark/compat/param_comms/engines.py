"""The backend of opmark for PARAM's `--device` and `--backend`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from opmark.errors import UserError
from opmark.hardware.presence import why_no_device

ENGINES = {"cpu": "gloo", "cuda": "nccl"}
"""The library that moves the data, by device, as torch chooses it."""


@dataclass(frozen=True)
class Place:
    backend: str
    """opmark's backend."""
    device: str
    engine: str


def place_of(device: str | None, engine: str | None) -> Place:
    """Choose device and engine; each determines the other, and the default is a GPU if there is one, as in PARAM."""
    if device == "tpu":
        raise UserError("--device tpu: opmark has no backend for it", f"use one of {', '.join(ENGINES)}")
    if engine is not None and engine not in ENGINES.values():
        raise UserError(
            f"--backend {engine}: opmark uses the engine that torch.distributed chooses for the device",
            "gloo for --device cpu, nccl for --device cuda",
        )
    kind = "cuda" if device == "rocm" else device or _device_of(engine)
    if engine is not None and engine != ENGINES[kind]:
        raise UserError(
            f"--backend {engine}: the engine of --device {kind} is {ENGINES[kind]}",
            f"use --device {_device_of(engine)}, or leave --backend out",
        )
    return Place(f"torch-{kind}", kind, ENGINES[kind])


def _device_of(engine: str | None) -> str:
    if engine is not None:
        return next(device for device, own in ENGINES.items() if own == engine)
    return "cuda" if _has_gpu() else "cpu"


def _has_gpu() -> bool:
    """Look for a GPU; a process that imports the framework is started only if a driver is loaded."""
    if sys.platform != "linux" or why_no_device("cuda"):
        return False
    from opmark.registry import backend as find_backend
    from opmark.runner.probe import probe

    return not probe([find_backend("torch-cuda")])[0].reason
