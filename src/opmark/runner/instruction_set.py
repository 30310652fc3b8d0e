"""Limits for instructions that a processor advertises and the machine does not allow.

A virtual machine may pass on the flags of its host (AMX, for instance) and trap the instructions. oneDNN then dies of
SIGILL in the first bfloat16 product. A limit on the instruction set avoids it. The supervisor looks for the mildest
limit that works by running the very task that died; this file remembers it for the processor and the framework.
"""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import platformdirs

from opmark.hardware.host import cpu_model
from opmark.plugin import BackendInfo

VARIABLE = "ONEDNN_MAX_CPU_ISA"

LIMITS = ("AVX512_CORE_BF16", "AVX512_CORE_VNNI", "AVX512_CORE", "AVX2")
"""From the mildest to the strictest."""


def stricter_than(limit: str | None) -> tuple[str, ...]:
    return LIMITS[LIMITS.index(limit) + 1 :] if limit in LIMITS else LIMITS


def environ(limit: str | None) -> dict[str, str]:
    """The variables that a worker is started with."""
    return {VARIABLE: limit} if limit else {}


def limit_for(info: BackendInfo) -> str | None:
    """The limit that the workers of a backend start with: only processors are known to trap what they advertise."""
    return recall(info.name) if info.device == "cpu" else None


def recall(backend: str) -> str | None:
    """The limit that this backend needed on this machine before; None if it needed none."""
    return _read_notes().get(_note_key(backend))


def remember(backend: str, limit: str | None) -> None:
    """Keep the limit that a backend needs; None where it needs none any more."""
    notes = {**_read_notes(), _note_key(backend): limit}
    path = _notes_path()
    with suppress(OSError):  # where no note can be kept, the limit is found again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key: value for key, value in notes.items() if value}, indent=1))


def _read_notes() -> dict[str, str]:
    try:
        notes = json.loads(_notes_path().read_text())
    except (OSError, ValueError):
        return {}  # a lost note is found again by the next SIGILL
    return notes if isinstance(notes, dict) else {}


def _notes_path() -> Path:
    return platformdirs.user_cache_path("opmark") / "instruction_limits.json"


def _note_key(backend: str) -> str:
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "none"
    return f"{backend}, {cpu_model()}, torch {torch}"
