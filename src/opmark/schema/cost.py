"""Cost: the work that an operator cannot avoid, whoever computes it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from opmark.schema.tensor import TensorSpec
from opmark.schema.traffic import Traffic


class Cost(Struct, frozen=True, omit_defaults=True):
    """Each input element read once, each output element written once; temporaries do not count."""

    flops: int | None
    """Floating-point operations; a transcendental function counts as one. None where nobody can count them."""
    bytes_read: int
    bytes_written: int
    traffic: Traffic | None = None
    """Of communication: its bandwidth is that of a link, and the two above are only what its buffers take."""

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
