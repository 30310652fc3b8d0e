"""Cost: the work that every implementation of an operator has to do."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from opmark.schema.tensor import TensorSpec
from opmark.schema.traffic import Traffic


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
