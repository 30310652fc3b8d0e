"""Traffic: the bytes that a communication operator moves between ranks, or between host and device."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Link = Literal["peers", "host"]
"""`peers`: between devices or processes. `host`: between a device and the memory of its host."""


class Traffic(Struct, frozen=True):
    """Counted as nccl-tests does, so that numbers can be compared with its output."""

    size: int
    """Bytes that the algorithm bandwidth counts: the whole buffer, not one rank's part of it."""
    bus: float
    """Bytes that the busiest link has to carry at least: the size times the factor of the operator (2(n-1)/n for
    all_reduce), so that the bus bandwidth can be compared with the link's peak for any number of ranks."""
    ranks: int = 1
    """Number of ranks in one operation."""
    link: Link = "peers"
