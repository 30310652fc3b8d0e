"""PARAM's `--device` and `--backend` as a backend of opmark: each device has its engine."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from opmark.errors import UserError
from opmark.hardware.presence import why_no_device

ENGINES = {"cpu": "gloo", "cuda": "nccl"}
"""By device, who moves the data: torch's own choice."""


@dataclass(frozen=True)
class Place:
    backend: str
    """Of opmark."""
    device: str
    engine: str


def place_of(device: str | None, engine: str | None) -> Place:
    """Either says the other; neither: a GPU where there is one, as PARAM has it."""
    if device == "tpu":
        raise UserError("--device tpu: opmark has no backend for it", f"one of {', '.join(ENGINES)}")
    if engine is not None and engine not in ENGINES.values():
        raise UserError(
            f"--backend {engine}: torch.distributed is used with the engine that it takes for the device",
            "gloo for --device cpu, nccl for --device cuda",
        )
    kind = "cuda" if device == "rocm" else device or _device_of(engine)
    if engine is not None and engine != ENGINES[kind]:
        raise UserError(
            f"--backend {engine}: on --device {kind} data is moved by {ENGINES[kind]}",
            f"--device {_device_of(engine)}, or leave --backend out",
        )
    return Place(f"torch-{kind}", kind, ENGINES[kind])


def _device_of(engine: str | None) -> str:
    if engine is not None:
        return next(device for device, own in ENGINES.items() if own == engine)
    return "cuda" if _has_gpu() else "cpu"


def _has_gpu() -> bool:
    """A framework is only asked, in a process of its own, where a driver is loaded."""
    if sys.platform != "linux" or why_no_device("cuda"):
        return False
    from opmark.registry import backend as find_backend
    from opmark.runner.probe import probe

    return not probe([find_backend("torch-cuda")])[0].reason
