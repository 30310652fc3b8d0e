"""Finding: what was found out about a machine, its peaks or its noise."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Finding(Struct, frozen=True):
    kind: str
    """`peaks` or `noise`."""
    chip: str
    """What it is kept under."""
    started: str
    body: Any
