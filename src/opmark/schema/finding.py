"""A stored finding about a machine: its peaks or its noise."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Finding(Struct, frozen=True):
    kind: str
    """`peaks` or `noise`."""
    chip: str
    """The chip (for a processor, with its threads) that the finding is stored under."""
    started: str
    body: Any
