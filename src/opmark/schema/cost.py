"""Cost: the work that every implementation of an operator has to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from opmark.schema.tensor import TensorSpec

# Traffic: the bytes that a communication operator moves between ranks, or between host and device.

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


class Cost(Struct, frozen=True, omit_defaults=True):
    """Each input element is read once and each output element written once; temporaries do not count."""

    flops: int | None
    """Floating-point operations; a transcendental function counts as one. None if they cannot be counted."""
    bytes_read: int
    bytes_written: int
    traffic: Traffic | None = None
    """For communication operators: bytes over the links. The two fields above are then only the size of the buffers."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            None if self.flops is None or other.flops is None else self.flops + other.flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
        )

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


def nbytes(tensors: Iterable[TensorSpec]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
