"""Traffic: what a communication operator has to move between ranks, or between host and device."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Link = Literal["peers", "host"]
"""`peers`: between devices or processes. `host`: between a device and the memory of its host."""


class Traffic(Struct, frozen=True):
    """In the words of nccl-tests, so that numbers can be held against theirs."""

    size: int
    """Bytes that the algorithm bandwidth counts: the whole buffer, and not the part of a rank."""
    bus: float
    """Bytes that the busiest link has to carry at least: the size times the factor of the operator (2(n-1)/n for
    all_reduce), so that the bus bandwidth can be held against the link's peak whatever the number of ranks."""
    ranks: int = 1
    """That take part in one of them."""
    link: Link = "peers"
